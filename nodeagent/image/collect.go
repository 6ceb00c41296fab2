package image

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// Hold keeps an image or an archive from being collected until release is called, which may be
// called more than once. It is held by the digest it is asked for by, whether the
// store has it or not: hold it before Ensure. Holds do not outlast the process: who
// finds tasks running holds their images again before the first Collect.
func (s *Store) Hold(sum schema.Digest) (release func()) {
	d := digest.Digest(sum)
	s.mu.Lock()
	s.holds[d]++
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.holds[d]--; s.holds[d] == 0 {
			delete(s.holds, d)
		}
		if k := s.images[d]; k != nil {
			s.use(k)
		}
	})
}

// Limits are what Collect leaves of what is not held.
type Limits struct {
	Bytes int64         // of the whole store; zero: any
	Age   time.Duration // since an image was used last; zero: any
}

// Collected is what Collect has removed.
type Collected struct {
	Images []digest.Digest
	Layers int
	Bytes  int64
}

// Collect removes images until the store is within limits: those that were used least
// recently first, none that is held, and no layer that a pull is about to use. What is
// removed is gone at once as far as the store is concerned, and Run removes it from
// the disk. Errors are those of the disk; what was removed before is returned as well.
func (s *Store) Collect(now time.Time, limits Limits) (Collected, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out Collected
	old := func(used time.Time) bool { return limits.Age > 0 && now.Sub(used) > limits.Age }
	out.Bytes += s.copies.collect(func(used time.Time, bytes int64) bool {
		return old(used) || limits.Bytes > 0 && s.bytes.Load()+bytes > limits.Bytes
	})
	large := func() bool { return limits.Bytes > 0 && s.bytes.Load()+s.copies.all() > limits.Bytes }

	// What is of no image is what an interrupted pull has left.
	if err := s.sweep(&out, func(l *layer) bool { return old(l.used) || large() }); err != nil {
		return out, err
	}
	for _, d := range slices.SortedFunc(maps.Keys(s.images), func(a, b digest.Digest) int {
		return cmp.Or(s.images[a].used.Compare(s.images[b].used), cmp.Compare(a, b))
	}) {
		if s.holds[d] > 0 || !old(s.images[d].used) && !large() {
			continue
		}
		layers := s.images[d].record.Layers
		if err := s.forget(d); err != nil {
			return out, err
		}
		out.Images = append(out.Images, d)
		was := map[*layer]bool{}
		for _, name := range layers {
			was[s.layers[name]] = true
		}
		if err := s.sweep(&out, func(l *layer) bool { return was[l] }); err != nil {
			return out, err
		}
	}
	return out, nil
}

// forget removes the record of an image. s.mu is held.
func (s *Store) forget(d digest.Digest) error {
	if err := os.Remove(s.imageFile(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("collect image %s: %w", d, err)
	}
	delete(s.images, d)
	s.content = nil
	// Else a power loss could bring it back without its layers; Open would find that.
	if err := atomicfile.SyncDir(s.path(imagesDir)); err != nil {
		return fmt.Errorf("collect image %s: %w", d, err)
	}
	return nil
}

// sweep removes layers that no image has and no pull uses, if they may go. s.mu is held.
func (s *Store) sweep(out *Collected, may func(*layer) bool) error {
	used := map[string]bool{}
	for _, k := range s.images {
		for _, name := range k.record.Layers {
			used[name] = true
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.layers), func(a, b string) int {
		return cmp.Or(s.layers[a].used.Compare(s.layers[b].used), cmp.Compare(a, b))
	}) {
		l := s.layers[name]
		if used[name] || l.pins > 0 || !may(l) {
			continue
		}
		if err := s.bin.Put(s.path(layersDir, name)); err != nil {
			return fmt.Errorf("collect layer %s: %w", name, err)
		}
		delete(s.layers, name)
		s.bytes.Add(-l.record.Bytes)
		out.Layers++
		out.Bytes += l.record.Bytes
	}
	return nil
}

// Usage is what a store has.
type Usage struct {
	Bytes  int64 // of the layers, about, with those that are being unpacked, and of copies
	Images int   // digests by which an image can be asked for
	Layers int
	Held   int // digests
}

// Usage returns what the store has now.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Bytes: s.bytes.Load() + s.copies.all(), Images: len(s.images), Layers: len(s.layers), Held: len(s.holds)}
}

// Images returns the digests by which images and archives can be had without a
// network, sorted.
func (s *Store) Images() []digest.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.images))
}

// Content returns what Images does, sorted, but only the so many that were used last. It is not
// written to, and another slice if it is anything else.
func (s *Store) Content(most int) []schema.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.content == nil {
		all := slices.SortedFunc(maps.Keys(s.images), func(a, b digest.Digest) int {
			return cmp.Or(s.images[b].used.Compare(s.images[a].used), cmp.Compare(a, b))
		})
		s.content = make([]schema.Digest, 0, min(most, len(all)))
		for _, d := range all[:min(most, len(all))] {
			s.content = append(s.content, schema.Digest(d))
		}
		slices.Sort(s.content)
	}
	return s.content
}

// Layers returns the digests of the layers that the store has, of their tars (diff
// ids, in the words of OCI), sorted.
func (s *Store) Layers() []digest.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []digest.Digest
	for _, l := range s.layers {
		if l.record.Diff != "" {
			out = append(out, l.record.Diff)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Traffic is how many bytes of blobs have come from where.
type Traffic struct {
	Peers int64 // other machines
	Hosts int64 // registries, their mirrors, and the servers of packages
}

// Traffic returns what has come so far, whole or not.
func (s *Store) Traffic() Traffic {
	return Traffic{Peers: s.fromPeers.Load(), Hosts: s.client.traffic.Load()}
}

// Copy opens the copy of a blob, to be closed. If there is none, file is nil: done is closed
// when the blob has come, or the attempt has failed, and came is how many bytes have; done is nil
// if it does not come.
func (s *Store) Copy(sum schema.Digest) (file *os.File, came int64, done <-chan struct{}) {
	if s.copies.dir == "" {
		return nil, 0, nil
	}
	return s.copies.find(digest.Digest(sum), s.cfg.Now())
}
