package logfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// Reader reads a log, which may be written to meanwhile.
type Reader struct {
	dir, name string
	file      *os.File
	start     int64 // of the segment of file
	at        int64 // in file
	missed    int64
}

// Open returns a Reader at the beginning of what is kept. The error is
// fs.ErrNotExist when there is no such log.
func Open(dir, name string) (*Reader, error) {
	r := &Reader{dir: dir, name: name}
	return r, r.first(0)
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Offset returns how many bytes of the log are before what Read returns next.
func (r *Reader) Offset() int64 { return r.start + r.at }

// Missed returns how many bytes were passed over since the last call, because
// they were removed before they were read.
func (r *Reader) Missed() int64 {
	n := r.missed
	r.missed = 0
	return n
}

// first goes to the beginning of the oldest segment that begins at a byte or
// after it.
func (r *Reader) first(from int64) error {
	for {
		starts, err := segments(r.dir, r.name)
		if err != nil {
			return err
		}
		i, _ := slices.BinarySearch(starts, from)
		if i == len(starts) {
			return &fs.PathError{Op: "open", Path: segmentPath(r.dir, r.name, from), Err: fs.ErrNotExist}
		}
		// It may be removed in between, and then there is another.
		if err := r.open(starts[i]); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		from = starts[i] + 1
	}
}

// open goes to the beginning of a segment.
func (r *Reader) open(start int64) error {
	// What was put in its place is not waited for.
	f, err := os.OpenFile(segmentPath(r.dir, r.name, start), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file, r.start, r.at = f, start, 0
	return nil
}

// Read reads on. It returns io.EOF at the end of what was written so far; later
// there may be more.
func (r *Reader) Read(p []byte) (int, error) {
	for {
		n, err := r.file.Read(p)
		r.at += int64(n)
		if n > 0 || len(p) == 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		next := &Reader{dir: r.dir, name: r.name}
		if err := next.first(r.start + 1); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return 0, io.EOF // no later segment
			}
			return 0, err
		}
		// There is a later one, so this one has got its last byte; it may have
		// got it since it was read.
		n, err = r.file.Read(p)
		r.at += int64(n)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, errors.Join(err, next.Close())
		}
		_ = r.file.Close()
		next.missed = r.missed + next.start - r.Offset()
		*r = *next
	}
}

// SeekOffset goes to a byte of the log. What was removed before it can be read
// counts as missed; behind the end is the end.
func (r *Reader) SeekOffset(offset int64) error {
	for {
		starts, err := segments(r.dir, r.name)
		if err != nil {
			return err
		}
		if len(starts) == 0 {
			return nil // all of it is being removed
		}
		i, exact := slices.BinarySearch(starts, offset)
		if !exact && i > 0 {
			i--
		}
		if err := r.open(starts[i]); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if offset < starts[i] {
			r.missed += starts[i] - offset
			return nil
		}
		return r.forward(offset - starts[i])
	}
}

// forward goes to a byte of the segment, or to its end if that is before.
func (r *Reader) forward(at int64) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	r.at, err = r.file.Seek(min(at, info.Size()), io.SeekStart)
	return err
}

// SeekTail goes to the start of the last n lines of what is kept. An unfinished
// line at the end counts as one.
func (r *Reader) SeekTail(n int) error {
	starts, err := segments(r.dir, r.name)
	if err != nil {
		return err
	}
	newest := true
	for _, start := range slices.Backward(starts) {
		if err := r.open(start); errors.Is(err, fs.ErrNotExist) {
			break // and so are those before it
		} else if err != nil {
			return err
		}
		if n == 0 {
			_, err := r.seekEnd()
			return err
		}
		found, err := r.tail(&n, newest)
		if found || err != nil {
			return err
		}
		newest = newest && r.at == 0 // an empty segment is not the end of a line
	}
	return r.SeekOffset(r.start) // all of it
}

// tail looks for the start of the *n-th last line in the segment and goes there.
// It counts in *n the lines that it finds. In the newest segment the end of the
// last line is not the start of one.
func (r *Reader) tail(n *int, newest bool) (bool, error) {
	end, err := r.seekEnd()
	if err != nil {
		return false, err
	}
	block := make([]byte, min(end, 32<<10))
	for at := end; at > 0; {
		size := min(at, int64(len(block)))
		at -= size
		b := block[:size]
		if _, err := r.file.ReadAt(b, at); err != nil {
			return false, err
		}
		for i := bytes.LastIndexByte(b, '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			if newest && at+int64(i) == end-1 {
				continue
			}
			if *n--; *n == 0 {
				return true, r.forward(at + int64(i) + 1)
			}
		}
	}
	return false, nil
}

// seekEnd goes to the end of the segment and returns where that is.
func (r *Reader) seekEnd() (end int64, err error) {
	r.at, err = r.file.Seek(0, io.SeekEnd)
	return r.at, err
}

// SeekTime goes to the first output of that time or later. It is as exact as
// the index: output of the second before it may come first.
func (r *Reader) SeekTime(t time.Time) error {
	starts, err := segments(r.dir, r.name)
	if err != nil {
		return err
	}
	var before, after *stamp
	for _, start := range slices.Backward(starts) {
		list := stamps(segmentPath(r.dir, r.name, start))
		for _, s := range slices.Backward(list) {
			if s.at.Before(t) {
				before = &s
				break
			}
			after = &s
		}
		if before != nil {
			break
		}
		if len(list) == 0 && after == nil { // no index: better too much
			after = &stamp{offset: start}
		}
	}
	switch {
	case before != nil && t.Sub(before.at) < stampEvery:
		return r.SeekOffset(before.offset)
	case after != nil:
		return r.SeekOffset(after.offset)
	}
	if len(starts) == 0 {
		return nil
	}
	if err := r.open(starts[len(starts)-1]); err != nil {
		return err
	}
	_, err = r.seekEnd()
	return err
}
