package loop_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/nodeagent/loop"
)

// A directory has one lock, whatever path leads to it and whatever befalls the
// files in it; what an agent left behind that is gone holds nothing.
func TestLock(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	// Of a process that is alive, and was an agent never or long ago.
	if err := os.WriteFile(filepath.Join(dir, "agent.lock"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := loop.Take(dir)
	if err != nil {
		t.Fatalf("after a stale lock: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	refused := func(path, holder string) {
		t.Helper()
		l, err := loop.Take(path)
		if !errors.Is(err, loop.ErrInUse) || !strings.Contains(err.Error(), path) || !strings.HasSuffix(err.Error(), holder) {
			t.Errorf("by %s: %v, want ErrInUse with %q", path, err, holder)
		}
		if err == nil {
			_ = l.Close()
		}
	}
	us := fmt.Sprintf("(pid %d)", os.Getpid())
	refused(link, us)
	if os.Geteuid() == 0 {
		mount := t.TempDir()
		if err := syscall.Mount(dir, mount, "", syscall.MS_BIND, ""); err != nil {
			t.Logf("no bind mount here: %v", err)
		} else {
			refused(mount, us)
			if err := syscall.Unmount(mount, 0); err != nil {
				t.Error(err)
			}
		}
	}
	if err := os.Remove(filepath.Join(dir, "agent.lock")); err != nil {
		t.Fatal(err)
	}
	refused(dir, "another agent uses it") // and nobody knows which
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := loop.Take(link)
	if err != nil {
		t.Fatalf("after it was given back: %v", err)
	}
	if err := errors.Join(second.Close(), second.Close()); err != nil {
		t.Error(err)
	}
}

// An agent of before locks only the file.
func TestLockOfAnOlderAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "agent.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("77\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := loop.Take(dir); !errors.Is(err, loop.ErrInUse) || !strings.HasSuffix(err.Error(), "(pid 77)") {
		t.Errorf("%v, want ErrInUse with pid 77", err)
	}
}

// What is no directory has no lock, and the error says what is wrong with it.
func TestLockOfNoDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loop.Take(file); err == nil || !strings.Contains(err.Error(), "state directory "+file) || errors.Is(err, loop.ErrInUse) {
		t.Errorf("of a file: %v", err)
	}
}
