package image

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/musterhq/muster/schema/atomicfile"
)

// copies are blobs as they came, which other machines are given: manifests, settings and layers
// of images, and archives. What is unpacked cannot be given, since its digest is of these bytes.
// A copy is only that: what needs the space more may have it at any time. The zero value keeps
// none. It may be used from any goroutine.
type copies struct {
	dir, temp string // "": none are kept

	mu     sync.Mutex // guards what follows; what is done meanwhile takes a rename or the removal of a file
	kept   map[digest.Digest]*copied
	coming map[digest.Digest]*copying
	bytes  int64 // of those that are kept
}

// copied is a blob that is here.
type copied struct {
	size int64
	used time.Time
}

// copying is a blob that comes. It is written by one goroutine.
type copying struct {
	of    *copies
	sum   digest.Digest
	file  *os.File // nil: it is not kept, since the disk did not take it
	done  chan struct{}
	bytes int64 // guarded by of.mu
}

// open reads which copies there are; what has another name is no copy, and is removed.
func (c *copies) open() error {
	c.kept, c.coming = map[digest.Digest]*copied{}, map[digest.Digest]*copying{}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		sum := digest.NewDigestFromEncoded(digest.SHA256, e.Name())
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !digestForm.MatchString(sum.String()) {
			if err := os.RemoveAll(filepath.Join(c.dir, e.Name())); err != nil {
				return err
			}
			continue
		}
		c.kept[sum] = &copied{info.Size(), info.ModTime()}
		c.bytes += info.Size()
	}
	return nil
}

func (c *copies) path(sum digest.Digest) string { return filepath.Join(c.dir, sum.Encoded()) }

// begin returns what is to be given the bytes of a blob that comes; nil if it is not to be
// copied, since it is here, or comes already.
func (c *copies) begin(sum digest.Digest) *copying {
	if c.dir == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept[sum] != nil || c.coming[sum] != nil {
		return nil
	}
	file, err := os.CreateTemp(c.temp, "copy-")
	if err != nil {
		file = nil // there is no space, and the pull will say so
	}
	c.coming[sum] = &copying{of: c, sum: sum, file: file, done: make(chan struct{})}
	return c.coming[sum]
}

// write adds bytes. What the disk does not take is not kept; the pull goes on.
func (w *copying) write(p []byte) {
	if w == nil || len(p) == 0 {
		return
	}
	if w.file != nil {
		if _, err := w.file.Write(p); err != nil {
			w.drop()
		}
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.bytes += int64(len(p))
}

// drop removes what is written.
func (w *copying) drop() {
	if w.file != nil {
		_ = w.file.Close()           // nobody reads it, and it may be closed
		_ = os.Remove(w.file.Name()) // the next start does, else
		w.file = nil
	}
}

// end keeps the copy if it is whole, which was verified.
func (w *copying) end(whole bool, now time.Time) {
	if w == nil {
		return
	}
	// Its name must not be on the disk before its bytes.
	kept := whole && w.file != nil && atomicfile.Place(w.file, w.of.path(w.sum)) == nil
	if !kept {
		w.drop()
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.coming, w.sum)
	defer close(w.done)
	if kept {
		w.of.kept[w.sum] = &copied{w.bytes, now}
		w.of.bytes += w.bytes
	}
}

// has reports whether a copy is here.
func (c *copies) has(sum digest.Digest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[sum] != nil
}

// add keeps a small blob.
func (c *copies) add(sum digest.Digest, b []byte, now time.Time) {
	if w := c.begin(sum); w != nil {
		w.write(b)
		w.end(true, now)
	}
}

// read returns a small blob that is here, verified; false if there is none.
func (c *copies) read(sum digest.Digest, limit int64) ([]byte, bool) {
	c.mu.Lock()
	k := c.kept[sum]
	c.mu.Unlock()
	if k == nil || k.size > limit {
		return nil, false
	}
	b, err := os.ReadFile(c.path(sum))
	if err != nil || digest.FromBytes(b) != sum {
		return nil, false
	}
	return b, true
}

// find opens a copy. If it is not here, done is closed when it has come or the attempt has
// failed, and came is how many bytes of it have; done is nil if it does not come.
func (c *copies) find(sum digest.Digest, now time.Time) (file *os.File, came int64, done <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.coming[sum]; w != nil && w.bytes > 0 {
		return nil, w.bytes, w.done
	}
	k := c.kept[sum]
	if k == nil {
		return nil, 0, nil
	}
	f, err := os.Open(c.path(sum))
	if err != nil {
		c.forget(sum)
		return nil, 0, nil
	}
	k.used = now
	return f, 0, nil
}

// remove is forget for a copy that is damaged.
func (c *copies) remove(sum digest.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(sum)
}

// forget removes a copy. c.mu is held.
func (c *copies) forget(sum digest.Digest) {
	if k := c.kept[sum]; k != nil {
		c.bytes -= k.size
		delete(c.kept, sum)
		_ = os.Remove(c.path(sum)) // it is found again by the next start
	}
}

// collect removes copies, the least recently used first, as long as may says so of one, and of how
// many bytes all have.
func (c *copies) collect(may func(used time.Time, all int64) bool) (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sum := range slices.SortedFunc(maps.Keys(c.kept), func(a, b digest.Digest) int {
		return cmp.Or(c.kept[a].used.Compare(c.kept[b].used), cmp.Compare(a, b))
	}) {
		k := c.kept[sum]
		if !may(k.used, c.bytes) {
			break
		}
		bytes += k.size
		c.forget(sum)
	}
	return bytes
}

// all returns how many bytes the copies have.
func (c *copies) all() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}
