package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

var epoch = time.Unix(1_700_000_000, 0).UTC()

// tester is what testing.T and rapid.T share.
type tester interface {
	Helper()
	Fatal(...any)
}

func event(i int) schema.Event {
	return schema.Event{At: epoch, Kind: schema.EventStart, Task: fmt.Sprintf("u/web/%d", i), Message: fmt.Sprintf("started %d", i)}
}

func open(t tester, cfg Config) *Log {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// shut does what Run does when it ends.
func shut(t tester, l *Log) {
	t.Helper()
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
}

func since(t tester, l *Log, q schema.EventQuery) []schema.EventRecord {
	t.Helper()
	got, err := l.Since(q)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func ids(records []schema.EventRecord) []uint64 {
	var ids []uint64
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

func files(t tester, dir string) (names []string, size int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		names, size = append(names, e.Name()), size+info.Size()
	}
	return names, size
}

func TestAppendAndSince(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "events")
	l := open(t, Config{Dir: dir})
	l.Append(nil)
	l.Append([]schema.Event{event(0), event(1), {Kind: schema.EventApply, Commit: "abc"}})
	l.Append([]schema.Event{event(2)})
	for range 2 { // the second time after a restart
		for _, tc := range []struct {
			query schema.EventQuery
			want  []uint64
		}{
			{schema.EventQuery{}, []uint64{1, 2, 3, 4}},
			{schema.EventQuery{After: 2}, []uint64{3, 4}},
			{schema.EventQuery{After: 4}, nil},
			{schema.EventQuery{After: 99}, nil},
			{schema.EventQuery{Limit: 2}, []uint64{1, 2}},
			{schema.EventQuery{Limit: 2, Newest: true}, []uint64{3, 4}},
			{schema.EventQuery{Limit: 2, Newest: true, After: 3}, []uint64{4}},
			{schema.EventQuery{Limit: 1, Newest: true, Job: "u/web", After: 1}, []uint64{4}},
			{schema.EventQuery{Kind: schema.EventApply}, []uint64{3}},
			{schema.EventQuery{Task: "u/web/1"}, []uint64{2}},
		} {
			if diff := cmp.Diff(tc.want, ids(since(t, l, tc.query))); diff != "" {
				t.Errorf("%+v: %s", tc.query, diff)
			}
		}
		if diff := cmp.Diff(schema.EventRecord{ID: 2, Event: event(1)}, since(t, l, schema.EventQuery{})[1]); diff != "" {
			t.Error(diff)
		}
		shut(t, l)
		l = open(t, Config{Dir: dir})
	}
	l.Append([]schema.Event{event(3)})
	if got := ids(since(t, l, schema.EventQuery{After: 4})); len(got) != 1 || got[0] != 5 {
		t.Errorf("after a restart: %v", got)
	}
	if names, _ := files(t, dir); len(names) != 1 {
		t.Errorf("files %v: want one", names)
	}
	shut(t, l)
}

func TestRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := Config{Dir: dir, SegmentBytes: 1000, TotalBytes: 5000, Ring: 4}
	l := open(t, cfg)
	const n = 500
	for i := range n {
		l.Append([]schema.Event{event(i)})
		since(t, l, schema.EventQuery{Newest: true, Limit: 1}) // writes
		if _, size := files(t, dir); size > cfg.TotalBytes+200 {
			t.Fatalf("%d bytes after %d events: want at most %d", size, i+1, cfg.TotalBytes)
		}
	}
	check := func() {
		t.Helper()
		got := ids(since(t, l, schema.EventQuery{}))
		if len(got) < 20 || got[len(got)-1] != n {
			t.Fatalf("%d records, the last %d", len(got), got[len(got)-1])
		}
		for i, id := range got {
			if id != got[0]+uint64(i) {
				t.Fatalf("a gap or a double in %v", got)
			}
		}
		// A cursor reads on from anywhere, a page at a time.
		var paged []uint64
		for after := uint64(0); ; after = paged[len(paged)-1] {
			page := ids(since(t, l, schema.EventQuery{After: after, Limit: 7}))
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
		}
		if diff := cmp.Diff(got, paged); diff != "" {
			t.Fatal(diff)
		}
	}
	check()
	shut(t, l)
	l = open(t, cfg)
	check()
	shut(t, l)
}

// TestCrash cuts the last segment at every byte: what was whole is there, the
// log goes on, and no id is given twice.
func TestCrash(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	l := open(t, Config{Dir: source})
	l.Append([]schema.Event{event(0), event(1), event(2)})
	shut(t, l)
	names, _ := files(t, source)
	whole, err := os.ReadFile(filepath.Join(source, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, names[0]), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, Config{Dir: dir})
		lines := bytes.Count(whole[:cut], []byte("\n"))
		l.Append([]schema.Event{event(9)})
		got := since(t, l, schema.EventQuery{})
		shut(t, l)
		if len(got) != lines+1 || got[lines].Task != "u/web/9" || got[lines].ID != uint64(lines+1) {
			t.Fatalf("cut at %d: %v", cut, got)
		}
		l = open(t, Config{Dir: dir})
		if again := since(t, l, schema.EventQuery{}); !cmp.Equal(got, again) {
			t.Fatalf("cut at %d, opened again: %s", cut, cmp.Diff(got, again))
		}
		shut(t, l)
	}
}

func TestGarbageIsSkipped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, Config{Dir: dir})
	l.Append([]schema.Event{event(0), event(1)})
	shut(t, l)
	names, _ := files(t, dir)
	path := filepath.Join(dir, names[0])
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	junk := append(bytes.Repeat([]byte{0}, 3*maxLine), "\n{\"id\":0}\nnull\n"...)
	if err := os.WriteFile(path, bytes.Join([][]byte{lines[0], junk, lines[1]}, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"events-x.jsonl", "events-7.jsonl", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("not ours"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l = open(t, Config{Dir: dir, Ring: 1}) // so that the file is read too
	if diff := cmp.Diff([]uint64{1, 2}, ids(since(t, l, schema.EventQuery{}))); diff != "" {
		t.Error(diff)
	}
	shut(t, l)
}

// TestLikeASlice compares the log with a slice, over appends, restarts, crashes
// that lose the buffer, and queries.
func TestLikeASlice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "events")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		cfg := Config{Dir: dir, SegmentBytes: 300, TotalBytes: 1 << 30, Ring: 3}
		l := open(t, cfg)
		var want []schema.EventRecord
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for i := range rapid.IntRange(0, 5).Draw(t, "n") {
					l.Append([]schema.Event{event(i)})
					want = append(want, schema.EventRecord{ID: uint64(len(want) + 1), Event: event(i)})
				}
			},
			"restart": func(*rapid.T) { shut(t, l); l = open(t, cfg) },
			"crash": func(t *rapid.T) {
				since(t, l, schema.EventQuery{Newest: true}) // seen by somebody, so it is written
				l = open(t, cfg)
			},
			"query": func(t *rapid.T) {
				q := schema.EventQuery{
					After: rapid.Uint64Range(0, uint64(len(want)+2)).Draw(t, "after"), Limit: rapid.IntRange(0, 6).Draw(t, "limit"),
					Task: rapid.SampledFrom([]string{"", "u/web/1"}).Draw(t, "task"),
				}
				s := selection{query: q}
				for i := range want {
					s.take(&want[i])
				}
				if diff := cmp.Diff(s.records, since(t, l, q)); diff != "" {
					t.Fatalf("%+v: %s", q, diff)
				}
			},
		})
		shut(t, l)
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := open(t, Config{Dir: dir, FlushEvery: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		l.Append([]schema.Event{event(0)})
		if _, size := files(t, dir); size != 0 {
			t.Errorf("%d bytes written at once", size)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, size := files(t, dir); size == 0 {
			t.Error("nothing written after a second")
		}
		_, small := files(t, dir)
		l.Append([]schema.Event{{Message: strings.Repeat("x", 2*maxMessage)}})
		for range flushBytes / maxMessage {
			l.Append([]schema.Event{{Message: strings.Repeat("x", maxMessage)}})
		}
		synctest.Wait()
		if _, size := files(t, dir); size < small+flushBytes {
			t.Error("a full buffer is not written at once")
		}
		l.Append([]schema.Event{event(1)})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		l = open(t, Config{Dir: dir})
		got := since(t, l, schema.EventQuery{})
		if last := got[len(got)-1]; last.Task != "u/web/1" {
			t.Errorf("the last record is %+v", last)
		}
		if n := len(got[1].Message); n != maxMessage+len("…") {
			t.Errorf("a long message has %d bytes", n)
		}
		shut(t, l)
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Config{Dir: t.TempDir()})
		got := make(chan error, 1)
		go func() { got <- l.Wait(t.Context(), 1) }()
		l.Append([]schema.Event{event(0)})
		synctest.Wait()
		select {
		case err := <-got:
			t.Fatal("returned early", err)
		default:
		}
		l.Append([]schema.Event{event(1)})
		if err := <-got; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Wait(ctx, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		shut(t, l)
	})
}

func TestBrokenDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "events")
	var said bytes.Buffer
	l := open(t, Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		l.Append([]schema.Event{event(i)})
		if got := since(t, l, schema.EventQuery{Newest: true}); len(got) != i+1 {
			t.Fatalf("%d records in memory: want %d", len(got), i+1)
		}
	}
	if n := strings.Count(said.String(), "in memory only"); n != 1 {
		t.Errorf("logged %d times: %s", n, said.String())
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l.Append([]schema.Event{event(3)})
	since(t, l, schema.EventQuery{})
	if !strings.Contains(said.String(), "written again") {
		t.Error(said.String())
	}
	shut(t, l)
	l = open(t, Config{Dir: dir})
	if diff := cmp.Diff([]uint64{4}, ids(since(t, l, schema.EventQuery{}))); diff != "" {
		t.Error(diff)
	}
	shut(t, l)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open of a file: %v", err)
	}
}

func BenchmarkAppend(b *testing.B) {
	l := open(b, Config{Dir: b.TempDir()})
	e := []schema.Event{event(1)}
	for b.Loop() {
		l.Append(e)
		if len(l.buffer) > flushBytes {
			l.disk.Lock()
			l.flush()
			l.disk.Unlock()
		}
	}
	shut(b, l)
}
