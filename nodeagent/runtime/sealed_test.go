package runtime

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestSealed: a program that was replaced, as by an update of the machine, is the one that is
// executed next.
func TestSealed(t *testing.T) {
	t.Parallel()
	s := &sealed{path: filepath.Join(t.TempDir(), "program")}
	if f := s.open(); f != nil {
		t.Error("a program that is not there is open")
	}
	for _, text := range []string{"one", "another"} {
		temp := s.path + ".new"
		if err := os.WriteFile(temp, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, s.path); err != nil {
			t.Fatal(err)
		}
		f := s.open()
		if f == nil {
			t.Fatal("no copy")
		}
		if got, err := io.ReadAll(io.NewSectionReader(f, 0, 100)); string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
		if s.open() != f {
			t.Error("copied again, though it is the same")
		}
	}
}
