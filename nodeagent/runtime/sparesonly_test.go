package runtime

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestSparesWaitForStarts: while tasks start no keeper is made for the next one; the last of them has
// it made.
func TestSparesWaitForStarts(t *testing.T) {
	t.Parallel()
	made := 0
	s := &spares{wanted: true, keeper: filepath.Join(t.TempDir(), "none"), log: slog.New(slog.DiscardHandler), program: func() *os.File { made++; return nil }}
	s.begin()
	s.begin()
	for want := range 2 {
		s.end()
		s.making.Wait()
		if made != want {
			t.Errorf("made %d, want %d", made, want)
		}
	}
	s.begin()
	s.end()
	s.making.Wait()
	if made != 2 {
		t.Errorf("made %d after a start by itself, want 2", made)
	}
}
