package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// config is a lock of a directory of the test's own.
func config(t *testing.T) Config {
	t.Helper()
	return Config{Dir: t.TempDir(), File: "lock", Owner: "me"}
}

// take takes a lock until the test ends.
func take(t *testing.T, cfg Config) *Lock {
	t.Helper()
	l, err := Take(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// refused wants cfg's lock to be held by owner.
func refused(t *testing.T, cfg Config, owner string) {
	t.Helper()
	l, err := Take(cfg)
	var held *HeldError
	if !errors.As(err, &held) || !errors.Is(err, ErrHeld) || held.Owner != owner {
		t.Errorf("%v, want that %q has the lock", err, owner)
	}
	if err == nil {
		_ = l.Close()
	}
}

// TestTake: one has the lock, who that is can be read, and what was given back or was
// left behind by the dead is free.
func TestTake(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		cfg := config(t)
		cfg.Whole = whole
		if err := os.WriteFile(filepath.Join(cfg.Dir, cfg.File), []byte("a process of long ago\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		l := take(t, cfg)
		refused(t, cfg, "me")
		again := cfg
		again.Wait = time.Hour
		taken := make(chan error)
		go func() {
			next, err := Take(again)
			if err == nil {
				err = next.Close()
			}
			taken <- err
		}()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-taken; err != nil {
			t.Errorf("once it was given back: %v", err)
		}
	}
}

// TestWhole: a lock file that is removed or replaced takes nobody's lock away.
func TestWhole(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Whole = true
	take(t, cfg)
	name := filepath.Join(cfg.Dir, cfg.File)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	refused(t, cfg, "")
	if err := syscall.Mkfifo(name, 0o600); err != nil { // that nobody may wait for
		t.Fatal(err)
	}
	refused(t, cfg, "")
}

// TestLook: who only looks makes no file, and keeps others from the lock all the same.
func TestLook(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Whole = true
	looks := cfg
	looks.Look = true
	l := take(t, looks)
	if entries, err := os.ReadDir(cfg.Dir); err != nil || len(entries) != 0 {
		t.Errorf("in the directory: %v, %v; want nothing", entries, err)
	}
	refused(t, cfg, "")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	take(t, cfg)
	refused(t, looks, "me")
}

// TestReplaced: what is locked is what the name leads to, even if that was replaced
// between its opening and its locking.
func TestReplaced(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	l := &Lock{cfg: cfg}
	opened := 0
	err := l.lock(filepath.Join(cfg.Dir, cfg.File), func(name string) (*os.File, error) {
		f, err := l.open(name)
		if opened++; opened == 1 {
			err = errors.Join(err, os.Remove(name))
		}
		return f, err
	}, 0)
	if err != nil || opened != 2 {
		t.Fatalf("opened %d times, %v; want that it is opened again", opened, err)
	}
	refused(t, cfg, "")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	take(t, cfg)
}

// TestRetake: what was put in the place of the directory is locked, too.
func TestRetake(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Whole = true
	l := take(t, cfg)
	if err := errors.Join(os.Rename(cfg.Dir, cfg.Dir+".old"), os.Mkdir(cfg.Dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	l.Retake()
	refused(t, cfg, "")
	other := cfg
	other.Dir += ".old"
	refused(t, other, "me")
}

// TestInTheWay: what is no file is moved aside, and there is no lock in no directory.
func TestInTheWay(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	if err := os.Mkdir(filepath.Join(cfg.Dir, cfg.File), 0o700); err != nil {
		t.Fatal(err)
	}
	take(t, cfg)
	refused(t, cfg, "me")
	cfg.Dir = filepath.Join(cfg.Dir, "none")
	if _, err := Take(cfg); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
}
