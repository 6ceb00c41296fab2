package keeper

import (
	"os"
	"testing"
)

// TestSpareFits: a keeper that waits with the program of one runtime is for no task of another, not even
// where the other's is executed from where it is.
func TestSpareFits(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, has := range []*os.File{nil, null} {
		s, err := NewSpare(t.Context(), exe, t.TempDir(), has)
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range []*os.File{nil, null} {
			for _, executes := range []bool{false, true} {
				if want := !executes || program == has; s.Fits("/d", program, executes) != want {
					t.Errorf("with %v, for %v, executed: %v: want %v", has != nil, program != nil, executes, want)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
