package trash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Config is what a Bin needs. All must be set.
type Config struct {
	Dir string // made if it is not there
	Log *slog.Logger
	// Emptied is called by Run whenever it has removed all that it can.
	Emptied func()
}

// Bin is a directory of things to remove.
type Bin struct {
	cfg  Config
	last atomic.Uint64 // the name that was given last
	wake chan struct{}

	mu    sync.Mutex // guards what follows
	put   uint64     // how often something was put
	done  uint64     // put, when the last pass that has ended began
	stuck map[string]retry
}

// retry is an entry that could not be removed.
type retry struct {
	wait time.Duration
	at   time.Time
}

// The waits between two attempts at what cannot be removed: the first, which
// doubles up to the longest.
const (
	firstRetry   = time.Second
	longestRetry = 10 * time.Minute
)

// Open makes the directory of a Bin.
func Open(cfg Config) (*Bin, error) {
	if err := os.Mkdir(cfg.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return &Bin{cfg: cfg, wake: make(chan struct{}, 1), put: 1, stuck: map[string]retry{}}, nil
}

// Put moves path into the bin. It is no error if there is nothing at path.
func (b *Bin) Put(path string) error {
	for permitted := false; ; {
		err := os.Rename(path, filepath.Join(b.cfg.Dir, b.name()))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case taken(err):
			continue
		case errors.Is(err, fs.ErrPermission) && !permitted: // an ordinary user needs the directory's own
			permitted = true
			if info, failed := os.Lstat(path); failed != nil || !info.IsDir() || os.Chmod(path, 0o700) != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		b.mu.Lock()
		b.put++
		b.mu.Unlock()
		select {
		case b.wake <- struct{}{}:
		default:
		}
		return nil
	}
}

// name returns a name that this Bin has not given before. One that an earlier
// agent gave may be in use.
func (b *Bin) name() string { return strconv.FormatUint(b.last.Add(1), 10) }

// taken reports whether a rename failed since its target is there already.
func taken(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
}

// Status reports whether something is still being removed, and how many entries
// cannot be for now.
func (b *Bin) Status() (busy bool, stuck int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done < b.put, len(b.stuck)
}

// Run empties the bin, whenever there is something in it, until ctx ends.
func (b *Bin) Run(ctx context.Context) {
	for ctx.Err() == nil {
		next := b.pass(ctx)
		timer := time.NewTimer(cmp.Or(next, longestRetry))
		select {
		case <-ctx.Done():
		case <-b.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pass removes all that can be removed now, and returns how long to wait for what
// cannot; zero if there is none.
func (b *Bin) pass(ctx context.Context) time.Duration {
	b.mu.Lock()
	began := b.put
	b.mu.Unlock()
	d, err := os.Open(b.cfg.Dir)
	if err != nil {
		b.cfg.Log.Error("cannot look for what is to be removed; it is tried again", "dir", b.cfg.Dir, "err", err)
		return longestRetry
	}
	defer d.Close()
	flat := folder{d, b.name}
	for again := true; again && ctx.Err() == nil; {
		again, err = b.sweep(ctx, flat)
		if err != nil {
			b.cfg.Log.Error("cannot look for what is to be removed; it is tried again", "dir", b.cfg.Dir, "err", err)
			return longestRetry
		}
	}
	if ctx.Err() != nil {
		return 0
	}
	wait := b.ended(began)
	b.cfg.Emptied()
	return wait
}

// ended notes that all is removed that was put before a pass began, and returns
// when the next attempt at a stuck entry is due.
func (b *Bin) ended(began uint64) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = max(b.done, began)
	for _, r := range b.stuck {
		if w := max(time.Until(r.at), time.Millisecond); wait == 0 || w < wait {
			wait = w
		}
	}
	return wait
}

// sweep tries each entry of the bin once, and reports whether there may be more.
func (b *Bin) sweep(ctx context.Context, flat folder) (again bool, err error) {
	if _, err := flat.f.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	for ctx.Err() == nil {
		names, err := flat.f.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			return again, nil
		}
		if err != nil {
			return false, err
		}
		for _, name := range names {
			if ctx.Err() == nil && b.due(name) {
				again = b.try(ctx, flat, name) || again
			}
		}
	}
	return false, nil
}

// due reports whether an entry is to be tried now.
func (b *Bin) due(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.stuck[name]
	return !ok || !time.Now().Before(r.at)
}

// try removes one entry, and reports whether it did.
func (b *Bin) try(ctx context.Context, flat folder, name string) bool {
	err := flat.remove(ctx, name)
	if ctx.Err() != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		delete(b.stuck, name)
		return true
	}
	r, known := b.stuck[name]
	if !known {
		b.cfg.Log.Error("cannot remove what a task has left; it is tried again", "entry", filepath.Join(b.cfg.Dir, name), "err", fmt.Sprintf("%.200s", err))
	}
	r.wait = min(max(2*r.wait, firstRetry), longestRetry)
	r.at = time.Now().Add(r.wait)
	b.stuck[name] = r
	return false
}
