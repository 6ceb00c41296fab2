package history

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema/atomicfile"
)

const (
	// keepFiles and keepBytes bound what is kept: the oldest go first.
	keepFiles  = 200
	keepBytes  = 64 << 20
	fileSuffix = ".commit.gz"
	fileTime   = "20060102T150405.000Z"
)

// files keeps a Comparison in a file each, in a directory: gzip of two lines of JSON, the Entry
// and all of it, so that a list reads the first alone.
type files struct{ dir string }

// nameOf returns the name of an entry's file; names sort by time.
func nameOf(e *Entry) string {
	return e.Seen.UTC().Format(fileTime) + "-" + e.Commit + fileSuffix
}

// commitOf returns the commit whose file has a name; false if it is none of a commit.
func commitOf(name string) (string, bool) {
	rest, ours := strings.CutSuffix(name, fileSuffix)
	at, commit, parted := strings.Cut(rest, "-")
	_, err := time.Parse(fileTime, at)
	return commit, ours && parted && err == nil
}

// write writes a file, and removes the oldest that are too many.
func (f files) write(c *Comparison) error {
	name := filepath.Join(f.dir, nameOf(&c.Entry))
	err := os.MkdirAll(f.dir, 0o700)
	if err == nil {
		err = atomicfile.WriteFrom(name, 0o600, func(w io.Writer) error {
			z := gzip.NewWriter(w)
			to := json.NewEncoder(z)
			return errors.Join(to.Encode(&c.Entry), to.Encode(c), z.Close())
		})
	}
	if err == nil {
		err = f.trim()
	}
	if err != nil {
		return fmt.Errorf("history of commit %s: %w", c.Commit, err)
	}
	return nil
}

// remove removes the file of an entry.
func (f files) remove(e *Entry) error {
	return os.Remove(filepath.Join(f.dir, nameOf(e)))
}

// names returns the names of files, the newest first.
func (f files) names() ([]os.DirEntry, error) {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		_, ours := commitOf(e.Name())
		return !ours
	})
	slices.Reverse(entries)
	return entries, err
}

func (f files) trim() error {
	entries, err := f.names()
	if err != nil {
		return err
	}
	var bytes int64
	for i, e := range entries {
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
		if i > 0 && (i >= keepFiles || bytes > keepBytes) {
			if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) { // another may trim, too
				return err
			}
		}
	}
	return nil
}

// list returns the entries of the newest files, the newest first, at most so many.
func (f files) list(most int) ([]Entry, error) {
	names, err := f.names()
	if err != nil {
		return nil, err
	}
	out := []Entry{}
	for _, n := range names[:min(most, len(names))] {
		var e Entry
		err := f.read(n.Name(), &e, nil)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was too old by now
		}
		if err != nil { // the others are as good as before
			e = unread(n.Name(), err)
		}
		out = append(out, e)
	}
	return out, nil
}

// unread returns what is known of a file that cannot be read.
func unread(name string, err error) Entry {
	at, _, _ := strings.Cut(name, "-")
	seen, _ := time.Parse(fileTime, at)
	commit, _ := commitOf(name)
	return Entry{Version: Version, Commit: commit, Seen: seen, State: Unread, Unplanned: err.Error()}
}

// sweep removes what a write has left that did not come to its end. Nobody writes meanwhile.
func (f files) sweep() error {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if name := e.Name(); strings.Contains(name, fileSuffix+".") && strings.HasSuffix(name, ".new") {
			err = errors.Join(err, os.Remove(filepath.Join(f.dir, name)))
		}
	}
	return err
}

// find returns the newest commit whose hash begins so; nil if there is none.
func (f files) find(commit string) (*Comparison, error) {
	names, err := f.names()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if is, _ := commitOf(n.Name()); strings.HasPrefix(is, commit) {
			c := new(Comparison)
			return c, f.read(n.Name(), nil, c)
		}
	}
	return nil, nil
}

// read reads what is wanted of a file.
func (f files) read(name string, e *Entry, c *Comparison) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("history in %s: %w", name, err)
		}
	}()
	file, err := os.Open(filepath.Join(f.dir, name))
	if err != nil {
		return err
	}
	defer file.Close()
	z, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return err
	}
	from := json.NewDecoder(z)
	var first Entry
	if err := from.Decode(&first); err != nil {
		return err
	}
	if first.Version > Version {
		return fmt.Errorf("version %d of the format, and this release reads up to %d", first.Version, Version)
	}
	if e != nil {
		*e = first
	}
	if c == nil {
		return nil
	}
	return from.Decode(c)
}
