package fswatch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for the system's word.
const patience = 20 * time.Second

// TestChanges: what is relevant is reported, once for all of it, and the rest is not.
func TestChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seen := make(chan string, 100)
	w, err := New(func(path string, mode bool) bool {
		seen <- filepath.Base(path)
		return !mode && !strings.HasSuffix(path, ".lock")
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(dir); err != nil {
		t.Fatal(err)
	}
	touch := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case got := <-seen:
				if got == name {
					return
				}
			case <-time.After(patience):
				t.Fatalf("no event of %s", name)
			}
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // a change of the mode is what is tested
		t.Fatal(err)
	}
	touch("x.lock")
	touch("y.lock") // events come in order: that of x is dealt with
	select {
	case <-w.Changes():
		t.Error("it reports what is not relevant")
	default:
	}
	touch("a")
	touch("b")
	touch("c") // so that a and b are dealt with
	select {
	case <-w.Changes():
	case <-time.After(patience):
		t.Error("it does not report what is relevant")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if n := len(w.Changes()); n > 1 {
		t.Errorf("%d signals are left, want at most 1", n)
	}
}

func TestNothing(t *testing.T) {
	t.Parallel()
	var none *Watcher
	if none.Changes() != nil || none.Close() != nil {
		t.Error("a watcher of nothing reports changes")
	}
	w, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v, want %v", err, fs.ErrNotExist)
	}
}
