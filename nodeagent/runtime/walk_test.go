package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fill writes n bytes that take room on the disk.
func fill(t *testing.T, name string, n int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil { // some file systems give blocks late
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	const mib = 1 << 20
	empty := measure(t, dir)
	fill(t, filepath.Join(dir, "work/a/b/file"), mib)
	fill(t, filepath.Join(dir, "1/stdout"), mib)
	fill(t, filepath.Join(outside, "big"), 8*mib)
	for link, target := range map[string]string{"work/out": outside, "work/file": filepath.Join(outside, "big"), "work/loop": "."} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "work/a/b/file"), filepath.Join(dir, "work/again")); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "work/sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	got := measure(t, dir)
	if used := got.Bytes - empty.Bytes; used < 2*mib || used > 2*mib+256<<10 {
		t.Errorf("two files of 1 MiB, one of them with two names, links and a hole take %d bytes", used)
	}
	if got.Note != "" {
		t.Errorf("note %q", got.Note)
	}
}

func measure(t *testing.T, dir string) DiskUse {
	t.Helper()
	use, err := Measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	return use
}

func TestMeasureSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := dir + strings.Repeat("/d", maxDepth+3)
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := measure(t, dir); !strings.HasPrefix(got.Note, "at least: directories are nested more than 256 deep") {
		t.Errorf("note %q of directories that are too deep", got.Note)
	}
	if _, err := Measure(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a directory that is not there")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Measure(link); err == nil {
		t.Error("a link was followed")
	}
}
