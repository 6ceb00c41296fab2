package atomicfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
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

// TestWriteFrom: of several writers one wins whole, and an error leaves the file as it
// was and nothing beside it.
func TestWriteFrom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "state")
	const size = 10_000
	var writers sync.WaitGroup
	for _, letter := range []byte("abcd") {
		writers.Go(func() {
			if err := WriteFrom(name, 0o666, func(w io.Writer) error {
				for range size {
					if _, err := w.Write([]byte{letter}); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	won, err := os.ReadFile(name)
	if err != nil || len(won) != size || bytes.Count(won, won[:1]) != size {
		t.Fatalf("%d bytes, %v: the writers were mixed", len(won), err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("%v, %v: want mode 0666 whatever the umask", info.Mode(), err)
	}
	broken := errors.New("no more of it")
	if err := WriteFrom(name, 0o600, func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		return errors.Join(err, broken)
	}); !errors.Is(err, broken) {
		t.Errorf("%v, want the error of the content", err)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, won) {
		t.Errorf("%d bytes, %v: want what was there before", len(got), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want the file alone", entries, err)
	}
}
