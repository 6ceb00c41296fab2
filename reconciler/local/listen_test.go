package local

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// shortDir is a directory with a path that a socket's path may begin with.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "link")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func listenTo(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// stale is the path of a socket that a dead process has left.
func stale(t *testing.T) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestListenIsPrivate(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	path := filepath.Join(dir, "a", "b", "s")
	l := listenTo(t, path)
	for name, want := range map[string]fs.FileMode{"a": 0o700, "a/b": 0o700, "a/b/s": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v: want mode %v", name, info.Mode(), err, want)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	mkdir := func(name string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := filepath.Join(mkdir("file", 0o700), "s")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(mkdir("real", 0o700), link); err != nil {
		t.Fatal(err)
	}
	foreign := mkdir("foreign", 0o700)
	wantForeign := "belongs to uid 65534"
	if os.Chown(foreign, 65534, 65534) != nil { // not root: make another case of it
		wantForeign, foreign = "has mode 0755", mkdir("open2", 0o755)
	}
	for path, want := range map[string]string{
		"":                                       "want the path of a file",
		"@abstract":                              "want the path of a file",
		"a\x00b":                                 "want the path of a file",
		filepath.Join(mkdir("open", 0o711), "s"): "has mode 0711: want 0700",
		filepath.Join(foreign, "s"):              wantForeign,
		filepath.Join(link, "s"):                 "no link",
		file:                                     "something else is there",
		filepath.Join(file, "s"):                 "not a directory",
		filepath.Join(dir, strings.Repeat("x", 107-len(dir))): "the path has 108 bytes and the system takes at most 107",
	} {
		l, err := Listen(path)
		if err == nil {
			_ = l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", path, err, want)
		}
	}
	longest := filepath.Join(mkdir("l", 0o700), strings.Repeat("x", 107-len(dir)-3))
	if len(longest) != 107 {
		t.Fatal(len(longest))
	}
	listenTo(t, longest)
}

func TestListenRemovesOnlyWhatIsStale(t *testing.T) {
	t.Parallel()
	path := stale(t)
	l := listenTo(t, path) // although the file is there
	if _, err := Listen(path); !errors.Is(err, ErrAnswered) {
		t.Errorf("while somebody listens: %v", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the listener lost its socket: %v", err)
	}
	_ = c.Close()
	_ = l.Close()
}

// TestListenAtOnce starts many listeners: one wins, and it can be reached.
func TestListenAtOnce(t *testing.T) {
	t.Parallel()
	path := stale(t)
	var wg sync.WaitGroup
	won := make(chan net.Listener, 16)
	for range cap(won) {
		wg.Go(func() {
			l, err := Listen(path)
			switch {
			case err == nil:
				won <- l
			case !errors.Is(err, ErrAnswered):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d listeners", len(won))
	}
	l := <-won
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
	_ = l.Close()
}
