package archive

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// Kind is what an entry is.
type Kind byte

// The kinds of entry.
const (
	Directory Kind = 'd'
	File      Kind = 'f'
	Link      Kind = 'l' // symbolic
	HardLink  Kind = 'h' // another name of the entry that is called Entry.Link; Pack writes none

	end Kind = 'e'
)

// Entry is one of an archive.
type Entry struct {
	Kind     Kind
	Name     string // with slashes, relative
	Link     string // where a link leads
	Mode     fs.FileMode
	UID, GID int
	Time     time.Time
	Size     int64 // of a File, in bytes
}

// The exit status of a program that copies between an archive and files.
const (
	CopiedInPart = 1 // not all was copied: each with a line on stderr
	NotCopied    = 2 // the last line on stderr says what has ended it
)

// magic begins an archive: another form of it would have another.
const magic = "muster-archive/1\n"

// longest is the most bytes that a name may have, and a link.
const longest = 4095

// header is an entry as it is written, big endian, with name and link after it. After that
// of a file comes its content.
type header struct {
	Kind               Kind
	Mode, UID, GID     uint32
	Seconds            int64
	Nanoseconds        uint32
	Size               int64
	NameSize, LinkSize uint16
}

// Writer writes an archive. It belongs to one goroutine.
type Writer struct {
	w    *bufio.Writer
	left int64 // of the content that was promised
}

// NewWriter returns a writer to w, which has all of it after Close.
func NewWriter(w io.Writer) *Writer {
	a := &Writer{w: bufio.NewWriterSize(w, small)}
	_, _ = a.w.WriteString(magic) // the next write has its error
	return a
}

// Add begins an entry. What is written after it is the content of a file.
func (a *Writer) Add(e *Entry) error {
	if a.left != 0 {
		return fmt.Errorf("%d bytes of the entry before are missing", a.left)
	}
	if len(e.Name) > longest || len(e.Link) > longest {
		return fmt.Errorf("%.40q… has a name or a link of more than %d bytes", e.Name, longest)
	}
	h := header{
		Kind: e.Kind, Mode: uint32(e.Mode.Perm()), UID: uint32(e.UID), GID: uint32(e.GID),
		Seconds: e.Time.Unix(), Nanoseconds: uint32(e.Time.Nanosecond()),
		NameSize: uint16(len(e.Name)), LinkSize: uint16(len(e.Link)),
	}
	if e.Kind == File {
		h.Size, a.left = e.Size, e.Size
	}
	if err := binary.Write(a.w, binary.BigEndian, &h); err != nil {
		return err
	}
	_, err := a.w.WriteString(e.Name + e.Link)
	return err
}

// Write writes content of the file that was added last.
func (a *Writer) Write(b []byte) (int, error) {
	if int64(len(b)) > a.left {
		return 0, fmt.Errorf("%d bytes more than the entry has", int64(len(b))-a.left)
	}
	n, err := a.w.Write(b)
	a.left -= int64(n)
	return n, err
}

// Close ends the archive.
func (a *Writer) Close() error {
	err := a.Add(&Entry{Kind: end})
	if err == nil {
		err = a.w.Flush()
	}
	return err
}

// Reader reads an archive. It belongs to one goroutine.
type Reader struct {
	r    io.Reader
	left int64 // of the content
	seen bool  // the beginning
}

// NewReader returns a reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, small)} }

// errEnds is the error of an archive without an end.
var errEnds = errors.New("the archive ends in the middle")

// whole is the error of a read that needs all of it.
func whole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEnds
	}
	return err
}

// Next returns the next entry, and io.EOF after the last. What is left of the content of
// the one before is passed over.
func (a *Reader) Next() (*Entry, error) {
	if !a.seen {
		b := make([]byte, len(magic))
		if _, err := io.ReadFull(a.r, b); errors.Is(err, io.EOF) {
			return nil, errors.New("nothing came")
		} else if err != nil {
			return nil, whole(err)
		}
		if string(b) != magic {
			return nil, fmt.Errorf("what came is no archive, or one of another version: it begins with %q", b)
		}
		a.seen = true
	}
	if _, err := io.CopyN(io.Discard, a.r, a.left); err != nil {
		return nil, whole(err)
	}
	a.left = 0
	var h header
	if err := binary.Read(a.r, binary.BigEndian, &h); err != nil {
		return nil, whole(err)
	}
	if h.Kind == end {
		return nil, io.EOF
	}
	if h.NameSize > longest || h.LinkSize > longest || h.Size < 0 || h.Size > 0 && h.Kind != File {
		return nil, errors.New("the archive has an entry that cannot be one")
	}
	names := make([]byte, int(h.NameSize)+int(h.LinkSize))
	if _, err := io.ReadFull(a.r, names); err != nil {
		return nil, whole(err)
	}
	a.left = h.Size
	return &Entry{
		Kind: h.Kind, Name: string(names[:h.NameSize]), Link: string(names[h.NameSize:]), Mode: fs.FileMode(h.Mode) & fs.ModePerm,
		UID: int(h.UID), GID: int(h.GID), Time: time.Unix(h.Seconds, int64(h.Nanoseconds)), Size: h.Size,
	}, nil
}

// Read reads content of the file that Next has returned.
func (a *Reader) Read(b []byte) (int, error) {
	if a.left == 0 {
		return 0, io.EOF
	}
	n, err := a.r.Read(b[:min(int64(len(b)), a.left)])
	if a.left -= int64(n); a.left > 0 {
		err = whole(err)
	}
	return n, err
}
