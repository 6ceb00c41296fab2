package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
)

// top is the name in an archive of what was copied; all else is below it.
const top = "."

// small is how large a file may be to be read whole before its header is written, in bytes:
// those of /proc and /sys do not say how long they are.
const small = 64 << 10

// packing is one call of Pack.
type packing struct {
	w      *Writer
	report func(error)
	buffer []byte
}

// ErrLeftOut is in what is reported of a socket, a fifo or a device: they are no content.
var ErrLeftOut = errors.New("left out")

// unread is the error of what was to be read, not of what is written to.
type unread struct{ error }

// Pack writes what is at file to w as an archive, and all that is below it: directories, regular files and
// symbolic links, each directory before what is in it. file itself may be a link, which is
// followed; others are written as links. It is called "." in the archive.
//
// What else there is (sockets, fifos, devices), what cannot be read, and what changes while
// it is read is reported, and left out or filled up with zeros. The error is of what keeps
// it from going on: of file itself, or of w.
func Pack(w io.Writer, file string, report func(error)) error {
	p := &packing{w: NewWriter(w), report: report, buffer: make([]byte, small+1)}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return &os.PathError{Op: "copy", Path: file, Err: errors.New("it is a " + kind(info.Mode()))}
	}
	if err := p.add(file, top, info); err != nil {
		return err
	}
	return p.w.Close()
}

// add writes one entry with what is below it. The error is an unread if nothing was written.
func (p *packing) add(file, name string, info fs.FileInfo) error {
	e := &Entry{Name: name, Mode: info.Mode(), Time: info.ModTime()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID = int(s.Uid), int(s.Gid)
	}
	switch {
	case info.IsDir():
		return p.directory(file, name, e)
	case info.Mode().IsRegular():
		return p.file(file, name == top, e)
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(file)
		if err != nil {
			return unread{err}
		}
		e.Kind, e.Link = Link, to
		return p.w.Add(e)
	}
	return unread{&os.PathError{Op: "copy", Path: file, Err: fmt.Errorf("%w: it is a %s", ErrLeftOut, kind(info.Mode()))}}
}

// kind names what is not copied.
func kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeNamedPipe != 0:
		return "fifo"
	}
	return "device"
}

func (p *packing) directory(file, name string, e *Entry) error {
	d, err := os.Open(file)
	if err != nil {
		return unread{err}
	}
	names, err := d.Readdirnames(-1)
	_ = d.Close()
	if err != nil {
		return unread{err}
	}
	e.Kind = Directory
	if err := p.w.Add(e); err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		below := filepath.Join(file, n)
		info, err := os.Lstat(below)
		if err != nil {
			err = unread{err}
		} else {
			err = p.add(below, path.Join(name, n), info)
		}
		if problem, ok := errors.AsType[unread](err); ok {
			p.report(problem.error)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// file writes a regular file.
func (p *packing) file(name string, follow bool, e *Entry) error {
	flags := os.O_RDONLY | syscall.O_NONBLOCK // it may be a fifo by now
	if !follow {
		flags |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return unread{err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "copy", Path: name, Err: errors.New("it is no file any more")}
	}
	if err != nil {
		return unread{err}
	}
	e.Kind, e.Size = File, info.Size()
	if e.Size <= small {
		return p.small(name, f, e)
	}
	if err := p.w.Add(e); err != nil {
		return err
	}
	return p.large(name, f, e.Size)
}

// small writes a file of which is seen here how long it is.
func (p *packing) small(name string, f *os.File, e *Entry) error {
	n, err := io.ReadFull(f, p.buffer)
	switch {
	case err == nil:
		return unread{&os.PathError{Op: "copy", Path: name, Err: fmt.Errorf("it says that it has %d bytes, and has more than %d", e.Size, small)}}
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return unread{err}
	}
	e.Size = int64(n)
	if err := p.w.Add(e); err != nil {
		return err
	}
	_, err = p.w.Write(p.buffer[:n])
	return err
}

// large writes so many bytes, which the header has promised.
func (p *packing) large(name string, f *os.File, size int64) error {
	var from io.Reader = f
	for left := size; left > 0; {
		chunk := p.buffer[:min(left, small)]
		n, err := from.Read(chunk)
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				err = &os.PathError{Op: "read", Path: name, Err: fmt.Errorf("the last %d of its %d bytes were lost meanwhile: there are zeros in their place", left, size)}
			}
			p.report(err)
			from = zeros{}
			continue
		}
		if _, err := p.w.Write(chunk[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
