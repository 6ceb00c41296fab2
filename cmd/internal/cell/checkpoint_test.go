package cell

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRemoveOldest: the newest checkpoints of the cell stay, and so does what is none of them.
func TestRemoveOldest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{
		"c-20260301T120000Z.checkpoint", "c-20260301T130000Z.checkpoint", "c-20260301T140000Z.checkpoint",
		"c-mine.checkpoint", "other-20260301T120000Z.checkpoint", "c-20260301T110000Z.snapshot",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeOldest(dir, "c-", 1); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{"c-20260301T110000Z.snapshot", "c-20260301T140000Z.checkpoint", "c-mine.checkpoint", "other-20260301T120000Z.checkpoint"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Error(diff)
	}
}
