package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWrite: a file is replaced whole, one that was begun before a crash is in
// nobody's way, and what cannot be written leaves the old content.
func TestWrite(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(name+".new", []byte("half of an earlier att"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the first", "2nd"} {
		if err := Write(name, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if err := os.Mkdir(name+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(name, []byte("third"), 0o600); err != nil {
		t.Errorf("a directory is in the way of what is staged: %v", err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "third" {
		t.Errorf("%q, %v", got, err)
	}
	if err := Write(filepath.Join(t.TempDir(), "none", "state"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
}

// TestReserve: what is reserved is room that a later write takes, and nothing that
// anybody reads.
func TestReserve(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "state")
	if err := Reserve(name, 4096, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name + ".new")
	if err != nil {
		t.Fatal(err)
	}
	if blocks := info.Sys().(*syscall.Stat_t).Blocks; blocks*512 < 4096 {
		t.Errorf("%d blocks are reserved", blocks)
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it can be read: %v", err)
	}
	if err := Write(name, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "short" {
		t.Errorf("%q, %v", got, err)
	}
}
