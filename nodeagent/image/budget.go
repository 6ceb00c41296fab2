package image

import "sync/atomic"

// block is what the smallest file and a directory take on most file systems, in bytes.
const block = 4096

// budget is what one image may still take. It may be used from any goroutine: its
// layers are unpacked at the same time.
type budget struct {
	of      string
	bytes   atomic.Int64 // what is left
	entries atomic.Int64
	store   *atomic.Int64 // what the store has in all
	most    int64         // what the store may have; 0: any
}

// budget returns that of an image or an archive.
func (s *Store) budget(of string) *budget {
	b := &budget{of: of, store: &s.bytes, most: s.cfg.MaxBytes}
	b.bytes.Store(s.cfg.MaxImageBytes)
	b.entries.Store(s.cfg.MaxEntries)
	return b
}

// rounded returns what a file of that size takes, in bytes.
func rounded(size int64) int64 { return (size + block - 1) / block * block }

// take notes one more entry, and what it takes, before it is made. Errors are
// ErrInvalid and ErrNoSpace; what was taken stays taken.
func (b *budget) take(n int64) error {
	if err := b.grow(n); err != nil {
		return err
	}
	if b.entries.Add(-1) < 0 {
		return fail(ErrInvalid, b.of, "it has more entries than Config.MaxEntries")
	}
	return nil
}

// grow notes bytes.
func (b *budget) grow(n int64) error {
	all := b.store.Add(n)
	if b.bytes.Add(-n) < 0 {
		return fail(ErrInvalid, b.of, "it is larger unpacked than Config.MaxImageBytes")
	}
	if all > b.most && b.most > 0 {
		return fail(ErrNoSpace, b.of, "the store would have more than Config.MaxBytes, %d bytes", b.most)
	}
	return nil
}
