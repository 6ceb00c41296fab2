package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func newWriter(t *testing.T, dir string, l Limits) *Writer {
	t.Helper()
	w, err := NewWriter(dir, "stdout", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func open(t *testing.T, dir string) *Reader {
	t.Helper()
	r, err := Open(dir, "stdout")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func all(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestKept: whatever is written, what is kept is a suffix of it, begins at the
// start of a line unless a line is longer than a segment, and is within the
// limits. A reader that has kept up has all of it, byte for byte, and each
// number of last lines, and each place, is found.
func TestKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		limits := Limits{MaxBytes: rapid.Int64Range(40, 200).Draw(rt, "max"), Files: rapid.IntRange(2, 5).Draw(rt, "files")}
		w, err := NewWriter(dir, "stdout", limits)
		if err != nil {
			rt.Fatal(err)
		}
		defer w.Close()
		follower, err := Open(dir, "stdout")
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = follower.Close() }()
		var whole, followed string
		for _, p := range rapid.SliceOfN(rapid.StringMatching(`([a-z]{0,30}\n?){0,8}`), 0, 40).Draw(rt, "writes") {
			w.Write([]byte(p))
			whole += p
			b, err := io.ReadAll(follower)
			if err != nil {
				rt.Fatal(err)
			}
			followed += string(b)
		}
		if missed := follower.Missed(); followed != whole && missed == 0 {
			rt.Fatalf("the follower has %q of %q", followed, whole)
		}
		var bytes int64
		files, err := os.ReadDir(dir)
		if err != nil {
			rt.Fatal(err)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				rt.Fatal(err)
			}
			bytes += info.Size()
		}
		if bytes > limits.MaxBytes*int64(limits.Files) || len(files) > 2*limits.Files {
			rt.Fatalf("%d bytes in %d files are kept, want at most %d times %d", bytes, len(files), limits.Files, limits.MaxBytes)
		}
		r, err := Open(dir, "stdout")
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		read := func() string {
			b, err := io.ReadAll(r)
			if err != nil {
				rt.Fatal(err)
			}
			return string(b)
		}
		first := r.Offset()
		kept := read()
		if whole[first:] != kept {
			rt.Fatalf("kept from %d is %q of %q", first, kept, whole)
		}
		for _, n := range []int{0, 1, 2, 5, 1000} {
			if err := r.SeekTail(n); err != nil {
				rt.Fatal(err)
			}
			if got, want := read(), lastLines(kept, n); got != want {
				rt.Fatalf("last %d lines %q, want %q of %q", n, got, want, kept)
			}
		}
		at := rapid.Int64Range(0, int64(len(whole))).Draw(rt, "at")
		if err := r.SeekOffset(at); err != nil {
			rt.Fatal(err)
		}
		if got, missed := read(), r.Missed(); got != whole[max(at, first):] || missed != max(first-at, 0) {
			rt.Fatalf("from %d: %q and %d missed, want %q and %d", at, got, missed, whole[max(at, first):], max(first-at, 0))
		}
	})
}

func lastLines(s string, n int) string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// TestMissed: a reader that is overtaken learns how much it has missed, and
// goes on with the oldest that is kept.
func TestMissed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWriter(t, dir, Limits{MaxBytes: 100, Files: 2})
	r := open(t, dir)
	var whole []byte
	for i := range 100 {
		line := fmt.Appendf(nil, "line %d\n", i)
		w.Write(line)
		whole = append(whole, line...)
	}
	got := all(t, r)
	missed := r.Missed()
	if missed == 0 || int64(len(got))+missed != int64(len(whole)) || !bytes.HasSuffix(whole, []byte(got[len(got)-20:])) {
		t.Errorf("read %d and missed %d of %d bytes", len(got), missed, len(whole))
	}
	if r.Offset() != int64(len(whole)) || r.Missed() != 0 {
		t.Errorf("at %d, want %d", r.Offset(), len(whole))
	}
}

// TestFullDisk: what a full disk does not take is dropped and counted, the task
// goes on, and the log says so when there is room again. /dev/full fails as a
// full disk does.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWriter(t, dir, Limits{MaxBytes: 4096, Files: 2})
	w.Write([]byte("before\nhalf"))
	good := w.fd
	full, err := unix.Open("/dev/full", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.fd = full
	w.Write([]byte(" a line\nand\n"))
	w.Write([]byte("more\n"))
	w.Retry()
	want := Drops{Bytes: 17, Lines: 3, Reason: unix.ENOSPC.Error()}
	if got := w.Drops(); got != want || !w.Failing() {
		t.Errorf("drops %+v, want %+v", got, want)
	}
	w.fd = good
	if err := unix.Close(full); err != nil {
		t.Error(err)
	}
	w.Write([]byte("after\n"))
	text := "before\nhalf\n[muster: 17 bytes, 3 ends of lines among them, were dropped here: no space left on device]\nafter\n"
	if got := all(t, open(t, dir)); got != text {
		t.Errorf("log %q, want %q", got, text)
	}
	if w.Failing() || w.Drops() != want {
		t.Errorf("drops %+v afterwards, want %+v", w.Drops(), want)
	}
}

// TestSince finds the first output of a time or later.
func TestSince(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWriter(t, dir, Limits{MaxBytes: 100, Files: 5})
	base := time.Now()
	for i := range 8 { // each a segment, with a stamp of its own
		w.Write(fmt.Appendf(nil, "%d %50s\n", i, ""))
	}
	for i, start := range w.starts { // 3 to 7, as if 10 s had passed between
		var b [stampSize]byte
		stamp{base.Add(time.Duration(10*i) * time.Second), start}.encode(&b)
		if err := os.WriteFile(segmentPath(dir, "stdout", start)+timesSuffix, b[:], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, dir)
	for after, want := range map[time.Duration]string{
		-time.Hour:       "3 4 5 6 7",
		0:                "3 4 5 6 7",
		2 * time.Second:  "4 5 6 7",
		25 * time.Second: "6 7", 30*time.Second + time.Millisecond: "6 7",
		40*time.Second + time.Millisecond: "7", time.Minute: "",
	} {
		if err := r.SeekTime(base.Add(after)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(all(t, r)), " "); got != want {
			t.Errorf("since %v: %q, want %q", after, got, want)
		}
	}
}

// TestNoAllocation: writing within a segment allocates nothing.
func TestNoAllocation(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, dir, Limits{MaxBytes: 64 << 20, Files: 2})
	p := bytes.Repeat([]byte("0123456789abcde\n"), 64)
	if n := testing.AllocsPerRun(1000, func() { w.Write(p) }); n != 0 {
		t.Errorf("%v allocations a write, want 0", n)
	}
}

func TestNoLog(t *testing.T) {
	t.Parallel()
	if _, err := Open(t.TempDir(), "stdout"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of no log: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), "stdout"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open in no directory: %v", err)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got, err := ReadStatus(dir); len(got) != 0 || err != nil {
		t.Errorf("status of no log: %v, %v", got, err)
	}
	f, err := CreateStatus(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := Status{Drops: Drops{Bytes: 1 << 40, Lines: 7, Reason: strings.Repeat("x", 100)}, Stalled: time.Unix(1, 0).UTC()}
	if err := WriteStatus(f, 1, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadStatus(dir)
	if err != nil || len(got) != 2 || got[0] != (Status{}) || got[1] != want {
		t.Errorf("status %+v, %v", got, err)
	}
}
