package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

const (
	// bookmarkEvery is how often a watcher gets the version up to which it has all changes,
	// even if nothing that it watches has changed.
	bookmarkEvery = 10 * time.Second
	// maxWatches is how many requests may watch at once.
	maxWatches = 1000
)

// The events of a watched list. The last of a version has the version as its id, so that
// whoever goes on from there has missed nothing.
const (
	eventAdded    = "added"
	eventChanged  = "changed"
	eventRemoved  = "removed"  // its item has a name alone
	eventBookmark = "bookmark" // all changes up to its version have been sent
	// eventStatus is the event of a watched status.
	eventStatus = "status"
)

// watchEvent is the data of an event of a list.
type watchEvent struct {
	Version uint64 `json:"version"`
	Item    any    `json:"item,omitempty"`
}

// gone says that what has changed since a version is not known.
func gone(version uint64) *failure {
	return &failure{
		http.StatusGone, fmt.Sprintf("version %d is too old, or another master's: what has changed since is not known", version),
		"list again, and watch from the version of that answer",
	}
}

// slow says that a watcher did not keep up.
var slow = &failure{http.StatusGone, "the watcher takes less than what changes: what follows is not kept for it", "list again, and watch from the version of that answer; or watch less"}

// versionOf returns the version that a watch continues from: the last one that the client
// got, if it reconnects; false if it is to begin with the whole list.
func versionOf(r *http.Request) (version uint64, ok bool, err error) {
	text := r.Header.Get("Last-Event-Id")
	if text == "" {
		text = r.URL.Query().Get("version")
	}
	if text == "" {
		return 0, false, nil
	}
	if version, err = strconv.ParseUint(text, 10, 64); err != nil {
		return 0, false, badRequest("such as that of the list", "version %.40q: want a number", text)
	}
	return version, true, nil
}

// watches are the requests that watch the cell, or its history.
type watches struct {
	feed  *feed
	whole slots
	room  chan struct{} // has one for each that watches
}

func newWatches(cell snapshots, whole slots) *watches {
	return &watches{newFeed(cell), whole, make(chan struct{}, maxWatches)}
}

// begin begins a watch, and returns what ends it.
func (x *watches) begin(r *http.Request) (end func(), err error) {
	if r.Method != http.MethodGet {
		return nil, badRequest("use GET", "%s has nothing to watch", r.Method)
	}
	select {
	case x.room <- struct{}{}:
		return func() { <-x.room }, nil
	default:
		return nil, &failure{http.StatusServiceUnavailable, fmt.Sprintf("%d watch already", maxWatches), "try again later"}
	}
}

// beginCell is begin of what the feed has.
func (x *watches) beginCell(r *http.Request) (end func(), err error) {
	endWatch, err := x.begin(r)
	if err != nil {
		return nil, err
	}
	leave := x.feed.enter()
	if _, _, err := x.feed.look(r.Context()); err != nil {
		leave()
		endWatch()
		return nil, stopped(err)
	}
	return func() { leave(); endWatch() }, nil
}

// watch answers with what changes in the list.
func (l *wanted[T]) watch(x *watches, w http.ResponseWriter, r *http.Request) error {
	if err := l.watchable(l.group); err != nil {
		return err
	}
	version, resumed, err := versionOf(r)
	if err != nil {
		return err
	}
	end, err := x.beginCell(r)
	if err != nil {
		return err
	}
	defer end()
	cell, place := x.feed.current()
	if resumed {
		if place = x.feed.after(version); place == nil {
			return gone(version)
		}
	}
	out, err := newEventStream(w)
	if err == nil && !resumed {
		err = l.all(out, cell)
	}
	if err == nil {
		err = l.follow(r.Context(), x.feed, out, place)
	}
	_ = err // the client has left, or does not read
	return nil
}

// all sends all items as if they had been added, and that these are all.
func (l *wanted[T]) all(out *eventStream, cell *status.Snapshot) error {
	version := cell.Brief().Version
	part, err := l.group.Of(cell)
	if err == nil { // else there is none yet
		for x := range l.items(part) {
			if l.passes(x) {
				if err := l.send(out, eventAdded, 0, watchEvent{version, x}); err != nil {
					return err
				}
			}
		}
	}
	if err := out.event(eventBookmark, version, watchEvent{Version: version}); err != nil {
		return err
	}
	return out.flush()
}

// follow sends the changes after a place, until ctx ends or the reader is too slow.
func (l *wanted[T]) follow(ctx context.Context, f *feed, out *eventStream, place *delta) error {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	sent, at := place.version, time.Now() // and when a version was sent last
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-alive.C:
			if err := out.alive(); err != nil {
				return err
			}
			continue
		case <-place.newer:
		}
		if f.behind(place) {
			return out.fail(slow)
		}
		place = place.next
		news, err := l.changed(out, place)
		if err == nil && !news && time.Since(at) >= bookmarkEvery && sent != place.version {
			news, err = true, out.event(eventBookmark, place.version, watchEvent{Version: place.version})
		}
		if err == nil {
			err = out.flush()
		}
		if err != nil {
			return err
		}
		if news {
			sent, at = place.version, time.Now()
		}
	}
}

// changed sends what of a delta belongs to the list, and returns whether anything does.
func (l *wanted[T]) changed(out *eventStream, d *delta) (news bool, err error) {
	name, item := "", (*T)(nil) // what is to be sent, when it is known whether it is the last
	changes := l.changes(d)
	for i := range changes {
		c := &changes[i]
		was, is := l.has(c.wasOf, c.was), l.has(c.isOf, c.is)
		event, x := eventChanged, c.is
		switch {
		case was && !is:
			event, x = eventRemoved, c.was
		case !was && is:
			event = eventAdded
		case !is || c.onlyItsLabels:
			continue
		}
		if item != nil {
			if err := l.send(out, name, 0, watchEvent{d.version, item}); err != nil {
				return true, err
			}
		}
		name, item = event, x
	}
	if item == nil {
		return false, nil
	}
	return true, l.send(out, name, d.version, watchEvent{d.version, item})
}

// has reports whether an item is in the list.
func (l *wanted[T]) has(of *status.JobStatus, x *T) bool {
	return x != nil && l.picks(l.group, of, x) && l.passes(x)
}

// send writes an event of an item, with the fields that are wanted; for one that was
// removed, its name.
func (l *wanted[T]) send(out *eventStream, name string, id uint64, e watchEvent) error {
	x := e.Item.(*T)
	if name == eventRemoved {
		e.Item = struct {
			Name string `json:"name"`
		}{l.name(x)}
	} else {
		var err error
		if e.Item, err = l.some(x); err != nil {
			return err
		}
	}
	return out.event(name, id, e)
}

// status answers with the status, and with each other one that follows.
func (x *watches) status(w http.ResponseWriter, r *http.Request, want statusQuery) error {
	end, err := x.beginCell(r)
	if err != nil {
		return err
	}
	defer end()
	var out *eventStream
	var last []byte
	alive, pace := time.NewTicker(keepAlive), time.NewTimer(0)
	defer alive.Stop()
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-r.Context().Done():
			return nil
		}
		pace.Reset(takeEvery)
		cell, place := x.feed.current()
		now, err := x.encoded(r.Context(), &want, cell)
		var f *failure
		switch {
		case out == nil && err != nil:
			return err
		case errors.As(err, &f):
			_ = out.fail(f) // or the client has left
			return nil
		case err != nil:
			return nil
		case out == nil:
			if out, err = newEventStream(w); err != nil {
				return nil
			}
		}
		if !bytes.Equal(now.compared, last) {
			last = now.compared
			if out.event(eventStatus, cell.Brief().Version, now.status) != nil || out.flush() != nil {
				return nil
			}
		}
		for waits := true; waits; {
			select {
			case <-r.Context().Done():
				return nil
			case <-place.newer:
				waits = false
			case <-alive.C:
				if out.alive() != nil {
					return nil
				}
			}
		}
	}
}

// encodedStatus is a status, and what of it is compared with that before: without the
// times at which it was taken.
type encodedStatus struct {
	status   *status.Status
	compared []byte
}

// encoded returns the status that is wanted. Those that are as large as the cell are made
// few at once.
func (x *watches) encoded(ctx context.Context, want *statusQuery, cell *status.Snapshot) (encodedStatus, error) {
	release, err := x.whole.take(ctx, want.whole())
	if err != nil {
		return encodedStatus{}, err
	}
	defer release()
	v, err := want.of(cell)
	if err != nil {
		return encodedStatus{}, err
	}
	timeless := *v
	timeless.At, timeless.SourceAt = time.Time{}, time.Time{}
	if v.Replica != nil {
		timeless.Replica = &status.Replica{Leader: v.Replica.Leader}
	}
	var b bytes.Buffer
	err = writeJSON(&b, &timeless)
	return encodedStatus{v, b.Bytes()}, err
}
