package directory_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/nodeagent/directory"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

func job(name string, ready bool) schema.DirectoryEntry {
	return schema.DirectoryEntry{Tasks: &schema.DirectoryTasks{
		User: "ann", Job: name, Labels: map[string]string{"app": name},
		Tasks: []schema.DirectoryTask{{Index: 0, Machine: "m1", Address: netip.MustParseAddr("10.0.0.1"), Ready: ready}},
	}}
}

func serviceOf(name, selector string) schema.DirectoryEntry {
	return schema.DirectoryEntry{Service: &schema.DirectoryService{ServiceSpec: schema.ServiceSpec{User: "ann", Name: name, Selector: selector}}}
}

func open(t *testing.T, cfg directory.Config) *directory.Directory {
	t.Helper()
	cfg.Cell, cfg.Log = "local", slog.New(slog.DiscardHandler)
	s, err := directory.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs s until the function that is returned is called.
func run(t *testing.T, s *directory.Directory) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(name)] = string(b)
	}
	return out
}

// TestSaved has a directory that outlives its store.
func TestSaved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "directory")
	s := open(t, directory.Config{Dir: dir})
	stop := run(t, s)
	s.Apply(schema.DirectoryChange{Whole: true, Set: []schema.DirectoryEntry{job("a", true), job("b", false), serviceOf("s", "app")}}, func() {})
	stop()
	again := open(t, directory.Config{Dir: dir})
	if diff := cmp.Diff(s.Digests(), again.Digests()); diff != "" {
		t.Error(diff)
	}
	if _, ok := again.Snapshot().Task("ann", "b", 0); !ok {
		t.Error("task b/0 was forgotten")
	}
	stop = run(t, again)
	again.Apply(schema.DirectoryChange{Removed: []string{"tasks/ann/b/0"}}, func() {})
	stop()
	if _, ok := open(t, directory.Config{Dir: dir}).Snapshot().Task("ann", "b", 0); ok {
		t.Error("task b/0 was removed, and is back")
	}
}

// TestDamaged has a file that was damaged, and one in the place of another.
func TestDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, directory.Config{Dir: dir})
	stop := run(t, s)
	s.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{job("a", true), job("b", true), job("c", true)}}, func() {})
	stop()
	path := func(name string) string {
		return filepath.Join(dir, fmt.Sprintf("%02d.json", schema.DirectoryShard("tasks/ann/"+name+"/0")))
	}
	if err := os.WriteFile(path("a"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path("b"), path("c")); err != nil {
		t.Fatal(err)
	}
	damages := 0
	s = open(t, directory.Config{Dir: dir, Damaged: func(durable.Damage) { damages++ }})
	if damages != 2 {
		t.Errorf("%d damages, want 2", damages)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, ok := s.Snapshot().Task("ann", name, 0); ok {
			t.Errorf("task %s/0 is there", name)
		}
	}
}

// TestSavedSoon counts when which files are written.
func TestSavedSoon(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, directory.Config{Dir: dir})
		stop := run(t, s)
		before := map[string]string{}
		for i, step := range []struct {
			set  []schema.DirectoryEntry
			want int
		}{
			{[]schema.DirectoryEntry{job("a", true), job("b", true)}, 2},
			{[]schema.DirectoryEntry{job("a", false), job("b", true)}, 1},
		} {
			s.Apply(schema.DirectoryChange{Set: step.set}, func() {})
			time.Sleep(90 * time.Millisecond)
			if diff := cmp.Diff(before, files(t, dir)); diff != "" {
				t.Errorf("step %d: written before its time (-before +after)\n%s", i, diff)
			}
			time.Sleep(20 * time.Millisecond) // the clock of the test stands still while files are written
			synctest.Wait()
			differ, is := 0, files(t, dir)
			for name, b := range is {
				if before[name] != b {
					differ++
				}
			}
			if differ != step.want {
				t.Errorf("step %d: %d files were written, want %d", i, differ, step.want)
			}
			before = is
		}
		stop()
	})
}

// TestPause: what takes long to write waits longer, and never longer than it may.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ took, most, want time.Duration }{
		{0, directory.DefaultSaveEvery, 100 * time.Millisecond},
		{10 * time.Millisecond, directory.DefaultSaveEvery, 500 * time.Millisecond},
		{time.Second, directory.DefaultSaveEvery, directory.DefaultSaveEvery},
		{0, time.Millisecond, time.Millisecond},
	} {
		if is := directory.Pause(tt.took, tt.most); is != tt.want {
			t.Errorf("after %v a change waits for %v, want %v", tt.took, is, tt.want)
		}
	}
}

// TestFollowersWait: what is on disk is followed with the first change of a master, though it says nothing new.
func TestFollowersWait(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, directory.Config{Dir: dir})
	stop := run(t, d)
	d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{job("a", true)}}, func() {})
	stop()
	var seen []*naming.Snapshot
	d, err := directory.Open(directory.Config{Cell: "local", Dir: dir}, func(now *naming.Snapshot, _ naming.Touched, done func()) {
		seen = append(seen, now)
		done()
	})
	if err != nil || len(seen) != 0 {
		t.Fatalf("%d snapshots, error %v", len(seen), err)
	}
	did := 0
	d.Apply(schema.DirectoryChange{}, func() { did++ })
	if did != 1 || len(seen) != 1 {
		t.Fatalf("%d snapshots, done %d times", len(seen), did)
	}
	if _, ok := seen[0].Task("ann", "a", 0); !ok {
		t.Error("a follower does not learn what is on disk")
	}
}
