package logfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestIndexWithFirstByte: a segment has no index before something is written to it, none is made where
// that failed, and a log without output is found by time all the same.
func TestIndexWithFirstByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWriter(t, dir, Limits{MaxBytes: 100, Files: 3})
	index := filepath.Join(dir, "stdout"+timesSuffix)
	if _, err := os.Lstat(index); !os.IsNotExist(err) {
		t.Errorf("before the first byte: %v", err)
	}
	r := open(t, dir)
	if err := r.SeekTime(time.Now()); err != nil || all(t, r) != "" {
		t.Errorf("an empty log by time: %v", err)
	}
	w.Write([]byte("one\n"))
	if list := stamps(filepath.Join(dir, "stdout")); len(list) != 1 {
		t.Errorf("after it: %v", list)
	}
	if err := r.SeekTime(time.Now().Add(-time.Minute)); err != nil || all(t, r) != "one\n" {
		t.Errorf("by time: %v", err)
	}

	other := t.TempDir()
	if err := os.Mkdir(filepath.Join(other, "stdout"+timesSuffix), 0o700); err != nil {
		t.Fatal(err)
	}
	w = newWriter(t, other, Limits{MaxBytes: 100, Files: 3})
	w.Write([]byte("one\n"))
	w.stamped = time.Time{}
	w.Write([]byte("two\n"))
	if r := open(t, other); all(t, r) != "one\ntwo\n" || w.times != -1 || w.Drops() != (Drops{}) {
		t.Errorf("without an index: descriptor %d, drops %+v", w.times, w.Drops())
	}
}
