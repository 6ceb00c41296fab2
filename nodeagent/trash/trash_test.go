package trash_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/nodeagent/trash"
	"golang.org/x/sys/unix"
)

// bin is a Bin whose Run goes on until the test ends.
type bin struct {
	*trash.Bin
	dir     string // beside that of the Bin
	emptied chan struct{}
	log     *lines
}

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func open(t *testing.T, dir string) *bin {
	t.Helper()
	b := &bin{dir: dir, emptied: make(chan struct{}, 100), log: &lines{}}
	var err error
	b.Bin, err = trash.Open(trash.Config{
		Dir: filepath.Join(dir, "removed"), Log: slog.New(slog.NewTextHandler(b.log, nil)), Emptied: func() { b.emptied <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bin) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// idle waits until all is removed that can be.
func (b *bin) idle() (stuck int) {
	for {
		if busy, stuck := b.Status(); !busy {
			return stuck
		}
		<-b.emptied
	}
}

func (b *bin) left(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, "removed"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// deep makes a directory with so many below each other, deeper than any path can be
// long, each with a file.
func deep(dir string, levels int) error {
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < levels && err == nil; i++ {
		var below, file int
		if file, err = unix.Openat(at, "f", unix.O_CREAT|unix.O_CLOEXEC, 0o600); err == nil {
			err = errors.Join(unix.Close(file), unix.Mkdirat(at, "directory", 0o700))
		}
		if err == nil {
			below, err = unix.Openat(at, "directory", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		err = errors.Join(err, unix.Close(at))
		at = below
	}
	return errors.Join(err, unix.Close(at))
}

func TestRemoves(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(dir string) error{
		"nothing":   func(string) error { return nil },
		"deep tree": func(dir string) error { return deep(dir, 3000) },
		"many entries": func(dir string) error {
			for i := range 3000 {
				sub := filepath.Join(dir, fmt.Sprint("d", i))
				if err := errors.Join(os.Mkdir(sub, 0o700), os.WriteFile(filepath.Join(sub, "f"), nil, 0o600), os.WriteFile(sub+".file", nil, 0o600)); err != nil {
					return err
				}
			}
			return nil
		},
		"no permissions": func(dir string) error {
			below := filepath.Join(dir, "a", "b")
			return errors.Join(os.MkdirAll(filepath.Join(below, "c"), 0o700), os.Chmod(below, 0), os.Chmod(filepath.Join(dir, "a"), 0o100), os.Chmod(dir, 0o500))
		},
		"links": func(dir string) error {
			return errors.Join(os.Symlink(filepath.Dir(dir), filepath.Join(dir, "up")), os.Symlink(".", filepath.Join(dir, "self")), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
		},
		"names of the bin's": func(dir string) error {
			for i := range 20 {
				if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), "1"), 0o700); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, t.TempDir())
			kept := filepath.Join(b.dir, "kept")
			dir := filepath.Join(b.dir, "task")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(kept, nil, 0o600), fill(dir)); err != nil {
				t.Fatal(err)
			}
			b.run(t)
			if err := b.Put(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after Put: %v, want it gone at once", err)
			}
			if n := b.idle(); n != 0 || len(b.left(t)) != 0 {
				t.Errorf("%d entries are stuck, %q left\n%s", n, b.left(t), b.log)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Errorf("what was not put in: %v", err)
			}
		})
	}
}

// The depth of a tree costs no descriptors.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	const variable = "MUSTER_TEST_TRASH"
	if dir := os.Getenv(variable); dir != "" {
		b := open(t, dir)
		if err := b.Put(filepath.Join(dir, "task")); err != nil {
			t.Fatal(err)
		}
		b.run(t)
		if n := b.idle(); n != 0 || len(b.left(t)) != 0 {
			t.Errorf("%d stuck, %q left\n%s", n, b.left(t), b.log)
		}
		return
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "task"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := deep(filepath.Join(dir, "task"), 1000); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `ulimit -n 32 && exec "$0" -test.run '^TestDescriptors$'`, os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with 32 descriptors: %v\n%s", err, out)
	}
}

// What an agent before has not removed goes with the next.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	first := open(t, t.TempDir())
	for _, name := range []string{"a", "b"} {
		dir := filepath.Join(first.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "x", "y"), 0o700), first.Put(dir)); err != nil {
			t.Fatal(err)
		}
	}
	if len(first.left(t)) != 2 {
		t.Fatalf("left %q, want two", first.left(t))
	}
	second := open(t, first.dir)
	if busy, _ := second.Status(); !busy {
		t.Error("it is not known that there may be something")
	}
	if err := os.Mkdir(filepath.Join(first.dir, "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := second.Put(filepath.Join(first.dir, "c")); err != nil { // the name 1 is in use
		t.Fatal(err)
	}
	second.run(t)
	if n := second.idle(); n != 0 || len(second.left(t)) != 0 {
		t.Errorf("%d stuck, %q left", n, second.left(t))
	}
}

// What cannot be removed is reported once, and holds nothing else up.
func TestStuck(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	mounted := filepath.Join(b.dir, "removed", "mounted")
	if err := os.MkdirAll(filepath.Join(mounted, "on"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", filepath.Join(mounted, "on"), "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs to mount a file system: %v", err)
	}
	unmount := sync.OnceValue(func() error { return unix.Unmount(filepath.Join(mounted, "on"), 0) })
	t.Cleanup(func() { _ = unmount() })
	b.run(t)
	for i := range 3 {
		dir := filepath.Join(b.dir, fmt.Sprint("task", i))
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "x"), 0o700), b.Put(dir)); err != nil {
			t.Fatal(err)
		}
		if n := b.idle(); n != 1 || len(b.left(t)) != 1 {
			t.Errorf("%d stuck, %q left, want only what has a mount", n, b.left(t))
		}
	}
	if n := strings.Count(b.log.String(), "cannot remove"); n != 1 {
		t.Errorf("reported %d times, want once:\n%s", n, b.log)
	}
	if err := unmount(); err != nil {
		t.Fatal(err)
	}
	for { // it is tried again, without being asked
		if _, stuck := b.Status(); stuck == 0 {
			break
		}
		<-b.emptied
	}
}
