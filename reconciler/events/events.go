package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	defaultSegmentBytes = 4 << 20
	defaultTotalBytes   = 64 << 20
	defaultRing         = 10_000
	defaultFlushEvery   = 10 * time.Millisecond // what a master that is killed can lose
	flushBytes          = 64 << 10              // flush at once when so much waits
	maxMessage          = 4 << 10               // of an event, in bytes
)

// Config is what a Log needs. Zero numbers mean the defaults.
type Config struct {
	Dir          string
	SegmentBytes int64         // a larger segment is closed; 4 MiB
	TotalBytes   int64         // all segments together; 64 MiB
	Ring         int           // records in memory; 10,000
	FlushEvery   time.Duration // how long an event may wait to be written; 10 ms
	Log          *slog.Logger
}

// Log is an event log. One process opens a directory at a time; the store's
// lock on the data directory sees to that.
type Log struct {
	cfg  Config
	some chan struct{} // the buffer is not empty
	full chan struct{} // the buffer is worth writing at once

	mu     sync.Mutex // guards what follows; never held while the disk works
	next   uint64     // id
	last   uint64     // id of the newest record; below next, and not always next to it
	ring   []schema.EventRecord
	buffer []byte        // lines that are not written
	first  uint64        // id in buffer
	more   chan struct{} // closed by the next Append

	disk     sync.Mutex // guards what follows; taken before mu
	segments []segment
	file     *os.File // the last of segments; nil before the first write
	failing  bool     // the last write to it failed
	unsure   bool     // the last write to intentions failed
	// intentions is the file of what is intended, nil before the first of it; intended what
	// it holds, nil once that is settled; and doubted the events that were appended last as
	// doubtful, if nothing was settled without an error since.
	intentions        *os.File
	intended, doubted []schema.Event
}

// Open opens the log in cfg.Dir, which it creates, and reads its newest part. What was
// intended, and neither appended nor settled, is appended as doubtful.
func Open(cfg Config) (*Log, error) {
	if cfg.SegmentBytes == 0 {
		cfg.SegmentBytes = defaultSegmentBytes
	}
	if cfg.TotalBytes == 0 {
		cfg.TotalBytes = defaultTotalBytes
	}
	if cfg.Ring == 0 {
		cfg.Ring = defaultRing
	}
	if cfg.FlushEvery == 0 {
		cfg.FlushEvery = defaultFlushEvery
	}
	l := &Log{cfg: cfg, some: make(chan struct{}, 1), full: make(chan struct{}, 1), next: 1, more: make(chan struct{})}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("event log: %w", err)
	}
	if err := l.load(); err != nil {
		return nil, fmt.Errorf("event log %s: %w", cfg.Dir, err)
	}
	if err := l.logIntended(); err != nil {
		return nil, fmt.Errorf("event log %s: %w", cfg.Dir, err)
	}
	return l, nil
}

// Run writes what is appended, until ctx ends; then it writes the rest and
// returns. What is appended later is not kept.
func (l *Log) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return l.close()
		case <-l.some:
		}
		select { // more is coming: a round of the master says all it has done
		case <-ctx.Done():
			return l.close()
		case <-time.After(l.cfg.FlushEvery):
		case <-l.full:
		}
		l.disk.Lock()
		l.flush()
		l.disk.Unlock()
	}
}

// Append adds events, in order. It never blocks on the disk; when that is full
// or broken the events are kept in memory alone. A message that is too long is
// cut.
func (l *Log) Append(events []schema.Event) {
	if len(events) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.add(schema.EventRecord{ID: l.next, Event: cut(e)})
	}
	l.added()
}

// add adds a record, whose id is at least next. The caller has the lock.
func (l *Log) add(r schema.EventRecord) {
	l.next, l.last = r.ID+1, r.ID
	line, err := json.Marshal(r)
	if err != nil { // a time beyond the year 9999
		l.cfg.Log.Error("event not stored", "event", r.Message, "err", err)
		return
	}
	if len(l.buffer) == 0 {
		l.first = r.ID
	}
	l.buffer = append(append(l.buffer, line...), '\n')
	l.remember(r)
}

// added wakes those who wait, and starts the write of what was added. The caller has the
// lock.
func (l *Log) added() {
	close(l.more)
	l.more = make(chan struct{})
	notify(l.some)
	if len(l.buffer) >= flushBytes {
		notify(l.full)
	}
}

// cut cuts an event's message if it is too long.
func cut(e schema.Event) schema.Event {
	if len(e.Message) > maxMessage {
		e.Message = strings.ToValidUTF8(e.Message[:maxMessage], "") + "…"
	}
	return e
}

// notify leaves word in c that there is something to do.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // word is there already
	}
}

// remember puts r into the ring. Twice the ring is held at most, so that
// dropping the oldest is rare. What was appended is never moved or changed, so
// a slice of it may be read without the lock.
func (l *Log) remember(r schema.EventRecord) {
	if len(l.ring) >= 2*l.cfg.Ring {
		l.ring = append(make([]schema.EventRecord, 0, 2*l.cfg.Ring), l.recent()...)
	}
	l.ring = append(l.ring, r)
}

// recent returns the newest records.
func (l *Log) recent() []schema.EventRecord { return l.ring[max(0, len(l.ring)-l.cfg.Ring):] }

// Wait returns nil when there is a record after the cursor, or the context's
// error.
func (l *Log) Wait(ctx context.Context, after uint64) error {
	for {
		l.mu.Lock()
		newest, more := l.last, l.more
		l.mu.Unlock()
		if newest > after {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Since returns the records that match, oldest first. With Newest it looks only
// at the records in memory. What was removed to keep the log small is left out
// without a word.
func (l *Log) Since(q schema.EventQuery) ([]schema.EventRecord, error) {
	l.disk.Lock()
	ring := l.flush() // or an id could be given again
	segments := slices.Clone(l.segments)
	l.disk.Unlock()
	if q.Newest {
		return newest(ring, q), nil
	}
	s := selection{query: q}
	if len(ring) == 0 || q.After+1 < ring[0].ID {
		before := uint64(0) // the ring goes on from there
		if len(ring) > 0 {
			before = ring[0].ID
		}
		if err := s.read(l.cfg.Dir, segments, before); err != nil {
			return nil, fmt.Errorf("event log %s: %w", l.cfg.Dir, err)
		}
	}
	for i := range ring {
		if !s.take(&ring[i]) {
			break
		}
	}
	return s.records, nil
}

// newest returns the last records that match.
func newest(ring []schema.EventRecord, q schema.EventQuery) []schema.EventRecord {
	var found []schema.EventRecord
	for i := len(ring) - 1; i >= 0 && (q.Limit == 0 || len(found) < q.Limit) && ring[i].ID > q.After; i-- {
		if q.Matches(&ring[i].Event) {
			found = append(found, ring[i])
		}
	}
	slices.Reverse(found)
	return found
}

// selection gathers what a query wants.
type selection struct {
	query   schema.EventQuery
	records []schema.EventRecord
}

// take adds r if it is wanted, and returns false when there are enough.
func (s *selection) take(r *schema.EventRecord) bool {
	if s.query.Limit > 0 && len(s.records) >= s.query.Limit {
		return false
	}
	if r.ID > s.query.After && s.query.Matches(&r.Event) {
		s.records = append(s.records, *r)
	}
	return true
}
