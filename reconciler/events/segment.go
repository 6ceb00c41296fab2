package events

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/schema"
)

const (
	prefix      = "events-"
	suffix      = ".jsonl"
	maxLine     = 64 << 10 // far above an event with the longest message
	minSegments = 2        // kept whatever their size
)

// segment is one file of the log.
type segment struct {
	first uint64 // no record in it has a lower id
	size  int64
}

// name returns the segment's file name; names sort as ids do.
func (s segment) name() string { return fmt.Sprintf("%s%020d%s", prefix, s.first, suffix) }

// load finds the segments, fills the ring from the newest and removes a torn
// line from the last.
func (l *Log) load() error {
	entries, err := os.ReadDir(l.cfg.Dir) // sorted by name
	if err != nil {
		return err
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok {
			continue
		}
		first, err := strconv.ParseUint(strings.TrimSuffix(number, suffix), 10, 64)
		if err != nil || e.Name() != (segment{first: first}).name() {
			continue // not ours
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		l.segments = append(l.segments, segment{first, info.Size()})
	}
	if err := l.fill(); err != nil {
		return err
	}
	return l.dropPartial()
}

// fill reads segments, newest first, until the ring is full.
func (l *Log) fill() error {
	for i := len(l.segments) - 1; i >= 0 && len(l.ring) < l.cfg.Ring; i-- {
		var records []schema.EventRecord
		err := scan(filepath.Join(l.cfg.Dir, l.segments[i].name()), func(r *schema.EventRecord) bool {
			records = append(records, *r)
			return true
		})
		if err != nil {
			return err
		}
		l.next = max(l.next, l.segments[i].first)
		l.ring = append(records, l.ring...)
	}
	l.ring = slices.Clone(l.ring[max(0, len(l.ring)-l.cfg.Ring):])
	if n := len(l.ring); n > 0 {
		l.next = max(l.next, l.ring[n-1].ID+1)
	}
	l.last = l.next - 1
	return nil
}

// dropPartial cuts off what follows the last newline of the last segment, so that the
// next line begins where a line ends.
func (l *Log) dropPartial() error {
	if len(l.segments) == 0 {
		return nil
	}
	s := &l.segments[len(l.segments)-1]
	path := filepath.Join(l.cfg.Dir, s.name())
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	whole := int64(bytes.LastIndexByte(b, '\n') + 1)
	if whole == s.size {
		return nil
	}
	s.size = whole
	return os.Truncate(path, whole)
}

// flush writes the buffer, and returns the newest records, all of them written. A write
// that fails loses the buffer, and is logged once. The caller holds disk.
func (l *Log) flush() []schema.EventRecord {
	l.mu.Lock()
	lines, first, ring := l.buffer, l.first, l.recent()
	l.buffer = nil
	l.mu.Unlock()
	if len(lines) == 0 {
		return ring
	}
	l.tried(&l.failing, l.write(lines, first))
	return ring
}

// tried logs the first write to a file that fails, and the first one that succeeds again.
// The caller holds disk.
func (l *Log) tried(failing *bool, err error) {
	if err != nil && !*failing {
		l.cfg.Log.Error("events are kept in memory only", "err", err)
	}
	if err == nil && *failing {
		l.cfg.Log.Info("events are written again")
	}
	*failing = err != nil
}

// write appends lines, the first of which has id first, to the last segment,
// after starting another if that one is full.
func (l *Log) write(lines []byte, first uint64) error {
	if n := len(l.segments); n == 0 || l.segments[n-1].size >= l.cfg.SegmentBytes {
		if err := l.rotate(first); err != nil {
			return err
		}
	}
	s := &l.segments[len(l.segments)-1]
	if l.file == nil {
		f, err := os.OpenFile(filepath.Join(l.cfg.Dir, s.name()), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		l.file = f
	}
	failpoint.EventAppend.Before()
	n, err := l.file.Write(lines)
	failpoint.EventAppend.After()
	if err != nil {
		// Part of a line may be there. Without it the next write is whole.
		return errors.Join(err, l.file.Truncate(s.size))
	}
	s.size += int64(n)
	return nil
}

// rotate closes the last segment, starts another and removes the oldest while
// there is too much. The new one holds no record yet: a file of its name can
// only be the rest of a failure.
func (l *Log) rotate(first uint64) error {
	if err := l.closeFile(); err != nil {
		return err
	}
	s := segment{first: first}
	failpoint.EventSegment.Before()
	f, err := os.OpenFile(filepath.Join(l.cfg.Dir, s.name()), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	failpoint.EventSegment.After()
	if err != nil {
		return err
	}
	l.file = f
	l.segments = append(l.segments, s)
	total := int64(0)
	for _, s := range l.segments {
		total += s.size
	}
	for total > l.cfg.TotalBytes-l.cfg.SegmentBytes && len(l.segments) > minSegments {
		if err := os.Remove(filepath.Join(l.cfg.Dir, l.segments[0].name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= l.segments[0].size
		l.segments = slices.Delete(l.segments, 0, 1)
	}
	return nil
}

// close writes what is left.
func (l *Log) close() error {
	l.disk.Lock()
	defer l.disk.Unlock()
	l.flush()
	err := l.closeFile()
	if l.intentions != nil {
		err = errors.Join(err, l.intentions.Close())
		l.intentions = nil
	}
	if err != nil {
		return fmt.Errorf("event log %s: %w", l.cfg.Dir, err)
	}
	return nil
}

func (l *Log) closeFile() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return errors.Join(f.Sync(), f.Close())
}

// read takes the records of the segments whose ids are below before (0: all).
func (s *selection) read(dir string, segments []segment, before uint64) error {
	for i, g := range segments {
		if i+1 < len(segments) && segments[i+1].first <= s.query.After+1 {
			continue // all of it is older
		}
		enough := false
		err := scan(filepath.Join(dir, g.name()), func(r *schema.EventRecord) bool {
			enough = before > 0 && r.ID >= before || !s.take(r)
			return !enough
		})
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile, as the oldest
		}
		if err != nil || enough {
			return err
		}
	}
	return nil
}

// scan calls f with the records of a file until f returns false. Lines that are
// no record are skipped: a crash may leave anything.
func scan(path string, f func(*schema.EventRecord) bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		var r schema.EventRecord
		if err == nil && json.Unmarshal(line, &r) == nil && r.ID > 0 && !f(&r) {
			return nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue // the rest of it is no record either
		case err != nil:
			return err
		}
	}
}
