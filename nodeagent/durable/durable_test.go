package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
	if err := Write(name, []byte("third"), 0o600); err == nil {
		t.Error("written over a directory")
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "2nd" {
		t.Errorf("after a write that failed: %q, %v", got, err)
	}
	if err := Write(filepath.Join(t.TempDir(), "none", "state"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
}
