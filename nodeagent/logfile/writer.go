package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// fileMode lets the agent's group read a log, and no task.
const fileMode = 0o640

// stampEvery is the time that one stamp stands for at least.
const stampEvery = time.Second

// Drops counts what the disk did not take.
type Drops struct {
	Bytes  int64  `json:"droppedBytes,omitempty"`
	Lines  int64  `json:"droppedLines,omitempty"` // ends of lines among them
	Reason string `json:"reason,omitempty"`       // of the last
}

// Writer writes a log.
type Writer struct {
	dir, name string
	limits    Limits
	starts    []int64 // of the segments there are; the last is written to

	fd, times int   // of the last segment; -1: none
	indexes   bool  // times is made, or could not be
	size      int64 // of the last segment
	indexed   int64 // bytes of its index
	stamped   time.Time
	midLine   bool // what was written last does not end a line
	stamp     [stampSize]byte

	drops    Drops
	unmarked Drops  // of drops, what no mark in the log reports yet; without Reason
	mark     []byte // what is still to be written of a mark
	failing  bool
}

// NewWriter begins a log in dir, which has none of that name. It errs when its
// first segment cannot be made.
func NewWriter(dir, name string, limits Limits) (*Writer, error) {
	limits.fill()
	w := &Writer{dir: dir, name: name, limits: limits, fd: -1, times: -1, starts: make([]int64, 0, limits.Files+1)}
	if err := w.open(0); err != nil {
		return nil, fmt.Errorf("log %s: %w", segmentPath(dir, name, 0), err)
	}
	return w, nil
}

// Drops returns what was dropped so far.
func (w *Writer) Drops() Drops { return w.drops }

// Failing reports whether the disk did not take what was written last.
func (w *Writer) Failing() bool { return w.failing }

// Write writes p, or drops what the disk does not take.
func (w *Writer) Write(p []byte) {
	if w.failing && !w.writeMark() {
		w.drop(p)
		return
	}
	if n, err := w.put(p); err != nil {
		w.fail(err)
		w.drop(p[n:])
	}
}

// Retry writes the mark of drops when there is room again, if there are any.
func (w *Writer) Retry() {
	if w.failing {
		w.writeMark()
	}
}

// Close closes the files. Drops that could not be marked are in Drops alone.
func (w *Writer) Close() {
	w.Retry()
	w.release()
}

func (w *Writer) fail(err error) {
	w.failing = true
	w.drops.Reason = err.Error()
}

func (w *Writer) drop(p []byte) {
	lines := int64(bytes.Count(p, newline))
	w.drops.Bytes += int64(len(p))
	w.drops.Lines += lines
	w.unmarked.Bytes += int64(len(p))
	w.unmarked.Lines += lines
}

var newline = []byte{'\n'}

// writeMark writes what was dropped into the log, and reports whether all of that is
// marked. What a reader may have seen of a mark is not taken back: the rest of it
// follows.
func (w *Writer) writeMark() bool {
	for {
		mark, covered := w.mark, Drops{}
		if len(mark) == 0 {
			if w.unmarked == covered {
				w.failing = false
				return true
			}
			mark, covered = w.compose(), w.unmarked
		}
		n, err := w.put(mark)
		if n > 0 {
			w.mark = mark[n:]
			w.unmarked.Bytes -= covered.Bytes
			w.unmarked.Lines -= covered.Lines
		}
		if err != nil {
			w.drops.Reason = err.Error()
			return false
		}
	}
}

// compose makes the mark that reports what is unmarked.
func (w *Writer) compose() []byte {
	begin := ""
	if w.midLine {
		begin = "\n"
	}
	return fmt.Appendf(nil, "%s[muster: %d bytes, %d ends of lines among them, were dropped here: %s]\n",
		begin, w.unmarked.Bytes, w.unmarked.Lines, w.drops.Reason)
}

// put writes p to the last segment, and to new ones when it is full. It returns
// how much of p was written.
func (w *Writer) put(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n := w.fit(p[done:])
		if n == 0 {
			if err := w.rotate(); err != nil {
				return done, err
			}
			continue
		}
		w.note()
		n, err := unix.Write(w.fd, p[done:done+n])
		if n > 0 {
			w.size += int64(n)
			done += n
			w.midLine = p[done-1] != '\n'
		}
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return done, err
		case err == nil && n == 0:
			return done, unix.ENOSPC
		}
	}
	return done, nil
}

// fit returns how much of p the last segment takes: all of it, or whole lines;
// 0 when it is time for another. A line longer than a segment is cut.
func (w *Writer) fit(p []byte) int {
	room := w.limits.MaxBytes - w.size - w.indexed - stampSize
	if int64(len(p)) <= room {
		return len(p)
	}
	if room > 0 {
		if n := bytes.LastIndexByte(p[:room], '\n') + 1; n > 0 {
			return n
		}
	}
	switch {
	case w.size == 0: // else nothing would ever fit
		return int(max(room, 1))
	case w.midLine:
		return int(max(room, 0))
	}
	return 0
}

// note adds a stamp to the index, if it is time. The log does without one that
// the disk does not take.
func (w *Writer) note() {
	now := time.Now()
	if now.Sub(w.stamped) < stampEvery || w.times < 0 && w.indexes {
		return
	}
	if !w.indexes { // only now: most tasks write nothing to one of their outputs
		w.indexes = true
		var err error
		if w.times, err = create(segmentPath(w.dir, w.name, w.starts[len(w.starts)-1]) + timesSuffix); err != nil {
			w.times = -1
			return
		}
	}
	stamp{now, w.starts[len(w.starts)-1] + w.size}.encode(&w.stamp)
	if n, err := unix.Write(w.times, w.stamp[:]); err == nil && n == stampSize {
		w.stamped, w.indexed = now, w.indexed+stampSize
		return
	}
	_ = unix.Ftruncate(w.times, w.indexed) // half a stamp would shift all later ones
}

// rotate begins another segment. First the oldest goes: so there are never too
// many, and a full disk has room for the newest.
func (w *Writer) rotate() error {
	for len(w.starts) >= w.limits.Files {
		path := segmentPath(w.dir, w.name, w.starts[0])
		if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		_ = unix.Unlink(path + timesSuffix)
		w.starts = w.starts[:copy(w.starts, w.starts[1:])]
	}
	return w.open(w.starts[len(w.starts)-1] + w.size)
}

// open makes the segment that begins at start the last.
func (w *Writer) open(start int64) error {
	path := segmentPath(w.dir, w.name, start)
	fd, err := create(path)
	if err != nil {
		return err
	}
	w.release()
	w.fd, w.size, w.indexed, w.stamped, w.indexes = fd, 0, 0, time.Time{}, false
	w.starts = append(w.starts, start)
	return nil
}

// release closes the files of the last segment.
func (w *Writer) release() {
	for _, fd := range []*int{&w.fd, &w.times} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// create makes a file that was not there.
func create(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode)
	if err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, fileMode); err != nil { // whatever the umask
		return -1, errors.Join(err, unix.Close(fd), os.Remove(path))
	}
	return fd, nil
}
