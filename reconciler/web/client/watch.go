package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

const (
	// watchRetry is how long a watch that broke off waits before it is taken up again, at
	// first; it doubles up to lastRetry.
	watchRetry = 100 * time.Millisecond
	// silentAfter is for how long a master that is watched may say nothing: it says each
	// 15 s that it is there.
	silentAfter = 45 * time.Second
	// pollWait is how long a master that cannot be watched is asked to wait.
	pollWait = 30 * time.Second
	// pollEvery is the least time between two questions to it.
	pollEvery = 200 * time.Millisecond
)

// Watch says how a watch goes on where it does not.
type Watch struct {
	// Say is called, once each, when the master cannot be watched and is polled, and when
	// the watch was interrupted.
	Say func(string)
	// Patience is for how long a master that does not answer any more is tried again.
	Patience time.Duration
}

// errNoWatch is the answer of a master that is older than watches.
var errNoWatch = errors.New("the master cannot be watched")

// StatusChanges returns the status that q asks for, but for After and Wait, and then each
// other one that follows, until ctx ends. It goes on when the connection breaks, or
// another process takes the master's place; a master that cannot be watched is polled. An
// error is the last value: *Error with the code 404 while the cell has nothing of q.Group,
// or what the first question has come to.
func (c *Client) StatusChanges(ctx context.Context, q StatusQuery, w Watch) iter.Seq2[*status.Status, error] {
	v := q.values()
	v.Set("watch", "1")
	return func(yield func(*status.Status, error) bool) {
		err := c.watch(ctx, "/v1/status", v, w, func(e *serverEvent) error {
			if e.name != "status" {
				return nil
			}
			s := new(status.Status)
			if err := json.Unmarshal(e.data, s); err != nil {
				return c.foreign(err)
			}
			if s.Version = e.id; !yield(s, nil) {
				return errStop
			}
			return nil
		})
		if errors.Is(err, errNoWatch) {
			err = c.pollStatus(ctx, q, yield)
		}
		if err != nil && !errors.Is(err, errStop) && ctx.Err() == nil {
			yield(nil, err)
		}
	}
}

// pollStatus yields each status that is another until ctx ends.
func (c *Client) pollStatus(ctx context.Context, q StatusQuery, yield func(*status.Status, error) bool) error {
	for {
		s, version, err := c.Status(ctx, q)
		if err != nil {
			return err
		}
		if s.Version = version; !yield(s, nil) {
			return errStop
		}
		q.After, q.Wait = version, pollWait
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// EventChanges returns the events that match, and then those that follow, until ctx ends,
// as StatusChanges does. No event is returned twice, and none that the master has is left
// out.
func (c *Client) EventChanges(ctx context.Context, q EventQuery, w Watch) iter.Seq2[*schema.EventRecord, error] {
	v := q.values()
	v.Set("watch", "1")
	return func(yield func(*schema.EventRecord, error) bool) {
		deliver := func(r *schema.EventRecord) error {
			if q.After = r.ID; !yield(r, nil) {
				return errStop
			}
			return nil
		}
		err := c.watch(ctx, "/v1/events", v, w, func(e *serverEvent) error {
			r := new(schema.EventRecord)
			if err := json.Unmarshal(e.data, r); err != nil {
				return c.foreign(err)
			}
			return deliver(r)
		})
		for wait := time.Duration(0); errors.Is(err, errNoWatch); wait = pollWait {
			records, failed := c.Events(ctx, q, wait)
			if failed != nil {
				err = failed
			}
			for i := 0; i < len(records) && errors.Is(err, errNoWatch); i++ {
				if stop := deliver(&records[i]); stop != nil {
					err = stop
				}
			}
			q.Newest, q.Limit = false, 0
		}
		if err != nil && !errors.Is(err, errStop) && ctx.Err() == nil {
			yield(nil, err)
		}
	}
}

// errStop says that no more is wanted.
var errStop = errors.New("no more is wanted")

// watch calls f with the events of a stream until f errs or ctx ends. It takes the stream
// up again where it broke off. It errs with errNoWatch if there is none to be had.
func (c *Client) watch(ctx context.Context, path string, v url.Values, w Watch, f func(*serverEvent) error) error {
	var last uint64 // what the stream goes on from
	wait, since, begun, warned := watchRetry, time.Now(), false, false
	for {
		err := c.stream(ctx, path, v, last, func(e *serverEvent) error {
			begun, warned, wait, since = true, false, watchRetry, time.Now()
			if err := f(e); err != nil {
				return given{err}
			}
			if e.id > 0 {
				last = e.id
			}
			return nil
		})
		var final given
		var answer *Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &final):
			return final.error
		case errors.Is(err, errNoWatch):
			w.Say("the master is of a release that cannot be watched: it is asked again and again")
			return err
		case !begun:
			return err
		case errors.As(err, &answer) && answer.Code >= 400 && answer.Code < 500: // it would say so again
			return err
		case time.Since(since) > w.Patience:
			return err
		case !warned:
			warned = true
			w.Say(fmt.Sprintf("%v; it goes on as soon as the master answers", err))
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, lastRetry)
	}
}

// given is an error of whom a stream is given to.
type given struct{ error }

// serverEvent is one event of a stream.
type serverEvent struct {
	name string
	id   uint64 // 0: it has none
	data []byte
}

// stream calls f with the events of one answer. That it ended is an error, too.
func (c *Client) stream(ctx context.Context, path string, v url.Values, last uint64, f func(*serverEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	header := http.Header{"Accept": {"text/event-stream"}}
	if last > 0 {
		header.Set("Last-Event-Id", strconv.FormatUint(last, 10))
	}
	resp, err := c.send(ctx, http.MethodGet, path, v, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return errNoWatch
	}
	silent := time.AfterFunc(silentAfter, cancel)
	defer silent.Stop()
	lines := bufio.NewReader(resp.Body)
	var e serverEvent
	for {
		line, err := readLine(lines)
		if err != nil {
			return c.cut(err)
		}
		silent.Reset(silentAfter)
		if len(line) > 0 {
			if err := e.field(line); err != nil {
				return c.foreign(err)
			}
			continue
		}
		switch {
		case len(e.data) == 0: // a comment
		case e.name == "error":
			return e.failure(c)
		default:
			if err := f(&e); err != nil {
				return err
			}
		}
		e = serverEvent{}
	}
}

// readLine returns a line without its end; it errs beyond what one answer may have.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxAnswer {
			return nil, fmt.Errorf("an event of more than %d bytes", maxAnswer)
		}
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// field takes a line of an event. Fields that are not known are left alone, as the
// standard has it.
func (e *serverEvent) field(line []byte) (err error) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		e.name = string(value)
	case "id":
		e.id, err = strconv.ParseUint(string(value), 10, 64)
	case "data":
		if e.data != nil {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
	}
	return err
}

// failure is the error with which a master has ended a stream.
func (e *serverEvent) failure(c *Client) error {
	var f struct {
		Code        int
		Error, Hint string
	}
	if err := json.Unmarshal(e.data, &f); err != nil {
		return c.foreign(err)
	}
	return &Error{Code: f.Code, Message: f.Error, Hint: f.Hint}
}
