package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/musterhq/muster/schema/atomicfile"
)

// A document is a JSON object whose last member is a checksum over the name of the
// document and all that stands before: a file that was changed, cut short, or put in
// the place of another is found out. Whoever does not know of the checksum reads the
// object as any other.
const (
	sumMember = `"checksum":"`
	sumEnd    = `"}`
	sumLen    = 16 // hexadecimal digits
)

// documentMode is the mode of all documents, and largestDocument bounds what is
// read, in bytes: a view of 10,000 tasks has 20 MiB.
const (
	documentMode    fs.FileMode = 0o600
	largestDocument             = 256 << 20
)

// checksum finds damage, by accident or mistake: whoever can write to the state
// directory on purpose can make another.
func checksum(id string, body []byte) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, id+"\x00") // a hash takes everything
	_, _ = h.Write(body)
	return fmt.Sprintf("%016x", h.Sum64())
}

// Seal returns the document of v, which must be written as a JSON object. id names
// it: what it is of, in words that do not change when the state directory is moved.
func Seal(id string, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	if len(b) < 2 || b[0] != '{' {
		return nil, fmt.Errorf("%s: %T is no JSON object", id, v)
	}
	if b = b[:len(b)-1]; len(b) > 1 {
		b = append(b, ',')
	}
	sum := checksum(id, b)
	return append(b, sumMember+sum+sumEnd...), nil
}

// Damage is the error of a file that is not what was written to it.
type Damage struct {
	File string // its path
	Why  string // such as "it is empty"
	// Repaired says that it was put right when it was found: nothing is lost.
	Repaired bool
}

// Error implements error.
func (d *Damage) Error() string { return "its " + filepath.Base(d.File) + " was damaged: " + d.Why }

// unseal reads the document id into v. One of an earlier release, without a
// checksum, is taken if old is true.
func unseal(b []byte, id string, v any, old bool) error {
	if len(b) == 0 {
		return errors.New("it is empty")
	}
	body, sum, sealed := split(b)
	switch {
	case sealed && checksum(id, body) != sum:
		return errors.New("its checksum is not that of its content and its place")
	case !sealed && !json.Valid(b):
		return errors.New("it is cut short or garbled")
	case !sealed && !old:
		return errors.New("it has no checksum")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if !sealed {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("it has another shape: %w", err)
	}
	return nil
}

// split returns what is before the checksum of a document, and the checksum.
func split(b []byte) (body []byte, sum string, ok bool) {
	n := len(b) - len(sumMember) - sumLen - len(sumEnd)
	if n < 1 || string(b[n:n+len(sumMember)]) != sumMember || string(b[len(b)-len(sumEnd):]) != sumEnd {
		return nil, "", false
	}
	return b[:n], string(b[n+len(sumMember) : len(b)-len(sumEnd)]), true
}

// Sealed reports whether there is a file that looks like a document with a
// checksum, whatever its content.
func Sealed(name string) bool {
	b, err := ReadRegular(name)
	_, _, ok := split(b)
	return err == nil && ok
}

// FormatFile in a state directory says that all its documents have checksums.
const FormatFile = "format.json"

// Current reports whether all documents of the state directory dir have checksums. It
// is false for one of an earlier release, until the loop's first look has added them,
// and for a new one.
func Current(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, FormatFile))
	return err == nil || Sealed(filepath.Join(dir, "view.json"))
}

// Documents reads and writes documents. The zero value is ready; its methods may be
// called from any goroutine.
type Documents struct {
	// Old takes documents of an earlier release, which have no checksum.
	Old bool
	// Report, if set, is called with each damage that is found.
	Report func(Damage)
}

// Read reads the document id from the file name into v, if it is whole. The error is
// fs.ErrNotExist if there is none, a *Damage if it is not what was written; others
// say that the machine could not read it now. It never waits for anything but the
// disk, whatever the file is.
func (d Documents) Read(name, id string, v any) error {
	b, err := ReadRegular(name)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(name, documentMode) == nil {
		if b, err = ReadRegular(name); err == nil {
			d.report(&Damage{File: name, Why: "its mode did not let the agent read it", Repaired: true})
		}
	}
	if err == nil {
		if err = unseal(b, id, v, d.Old); err != nil {
			err = &Damage{File: name, Why: err.Error()}
		}
	}
	if damage := (*Damage)(nil); errors.As(err, &damage) {
		d.report(damage)
	}
	return err
}

func (d Documents) report(damage *Damage) {
	if d.Report != nil {
		d.Report(*damage)
	}
}

// Write makes v the document id in the file name, as atomicfile.Write does.
func (Documents) Write(name, id string, v any) error {
	b, err := Seal(id, v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return atomicfile.Write(name, b, documentMode)
}

// ReadTwice reads a document that WriteTwice has written. If one of its copies is
// damaged or lost, it writes that again from the other.
func (d Documents) ReadTwice(name, id string, v any) error {
	err := d.Read(name, id, v)
	if err != nil && !lost(err) {
		return err
	}
	from, to := name, Second(name)
	if err != nil {
		from, to = to, from
		if d.Read(from, Second(id), v) != nil {
			return err
		}
	} else {
		var none struct{}
		if err = d.Read(to, Second(id), &none); !lost(err) {
			return nil // an unreadable second is of no use now, and no harm
		}
	}
	if errors.Is(err, fs.ErrNotExist) && !d.Old { // an earlier release has one only
		d.report(&Damage{File: to, Why: "it is missing; its other copy is there", Repaired: true})
	}
	return d.WriteTwice(name, id, v)
}

// lost reports whether err says that a document is not there, or is damaged.
func lost(err error) bool {
	var damage *Damage
	return errors.Is(err, fs.ErrNotExist) || errors.As(err, &damage)
}

// WriteTwice writes a document and a second copy of it, each as Write does.
func (d Documents) WriteTwice(name, id string, v any) error {
	return errors.Join(d.Write(Second(name), Second(id), v), d.Write(name, id, v))
}

// Second returns the name of the second copy of a document that is kept twice.
func Second(name string) string { return strings.TrimSuffix(name, ".json") + ".copy.json" }

// ReadRegular reads a file, without a checksum. The error is a *Damage for what is no
// regular file: none is waited for.
func ReadRegular(name string) ([]byte, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, syscall.ENOTDIR): // what is above it is no directory any more
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case err != nil:
		return nil, failedRead(name, err)
	case !info.Mode().IsRegular():
		return nil, &Damage{File: name, Why: "it is " + kind(info.Mode())}
	case info.Size() > largestDocument:
		return nil, &Damage{File: name, Why: fmt.Sprintf("it has %d bytes", info.Size())}
	}
	// It may have been replaced since: neither a link nor a pipe is waited for.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, failedRead(name, err)
	}
	b, err := readSized(f, info.Size())
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, failedRead(name, err)
	}
	return b, nil
}

// readSized reads a file that is most likely of that size: then by two calls, and not by one for each
// half of the room that there is.
func readSized(f *os.File, size int64) ([]byte, error) {
	b := make([]byte, size+1)
	n, err := io.ReadFull(f, b)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return b[:n], nil
	case err != nil:
		return nil, err
	}
	more, err := io.ReadAll(io.LimitReader(f, largestDocument))
	return slices.Concat(b, more), err
}

// failedRead makes a *Damage of what no retry would cure.
func failedRead(name string, err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EISDIR) {
		return &Damage{File: name, Why: err.Error()}
	}
	return err
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}
