package worktree_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/worktree"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

var _ loop.Source = (*worktree.Dir)(nil)

// reads counts what a Dir reads.
type reads struct{ n atomic.Int64 }

func (r *reads) read(dir string) (schema.Tree, error) {
	r.n.Add(1)
	return compile.ReadDir(dir)
}

func open(t *testing.T, dir string) (*worktree.Dir, *reads) {
	t.Helper()
	r := &reads{}
	d, err := worktree.Open(worktree.Config{Dir: dir, Read: r.read, Poll: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return d, r
}

// follow runs d until the test ends and returns what it calls back with.
func follow(t *testing.T, d *worktree.Dir) <-chan model.Seen {
	t.Helper()
	out, done := make(chan model.Seen, 1000), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		if err := d.Run(ctx, func(s model.Seen) { out <- s }); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	}()
	return out
}

// until waits for a sight of which ok holds.
func until(t *testing.T, seen <-chan model.Seen, what string, ok func(model.Seen) bool) model.Seen {
	t.Helper()
	end := time.After(20 * time.Second)
	var last model.Seen
	for {
		select {
		case last = <-seen:
			if ok(last) {
				return last
			}
		case <-end:
			t.Fatalf("%s was not seen; last %+v", what, last)
		}
	}
}

// shows returns whether a sight's tree has the file with the content.
func shows(t *testing.T, d *worktree.Dir, path, content string) func(model.Seen) bool {
	t.Helper()
	return func(s model.Seen) bool {
		tree, err := d.Tree(t.Context(), s.Commit)
		f, there := tree.Files[path]
		return err == nil && (there && string(f.Data) == content || !there && content == "")
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// With an hour between polls, every way to save is seen.
func TestEverySaveIsSeen(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		save          func(t *testing.T, dir string)
		path, content string
	}{
		"written in place": {func(t *testing.T, dir string) { write(t, dir+"/a.cue", "new") }, "a.cue", "new"},
		"renamed over, as editors do": {func(t *testing.T, dir string) {
			write(t, dir+"/.a.cue.tmp", "new")
			check(t, os.Rename(dir+"/.a.cue.tmp", dir+"/a.cue"))
		}, "a.cue", "new"},
		"moved away and written, as vim does": {func(t *testing.T, dir string) {
			check(t, os.Rename(dir+"/a.cue", dir+"/a.cue~"))
			write(t, dir+"/a.cue", "new")
			check(t, os.Remove(dir+"/a.cue~"))
		}, "a.cue", "new"},
		"in a subdirectory":  {func(t *testing.T, dir string) { write(t, dir+"/teams/x/b.cue", "new") }, "teams/x/b.cue", "new"},
		"in new directories": {func(t *testing.T, dir string) { write(t, dir+"/p/q/r/s.cue", "new") }, "p/q/r/s.cue", "new"},
		"a directory moved in": {func(t *testing.T, dir string) {
			from := t.TempDir()
			write(t, from+"/m/n/o.cue", "new")
			check(t, os.Rename(from+"/m", dir+"/m"))
		}, "m/n/o.cue", "new"},
		"removed":             {func(t *testing.T, dir string) { check(t, os.Remove(dir+"/teams/x/b.cue")) }, "teams/x/b.cue", ""},
		"a directory removed": {func(t *testing.T, dir string) { check(t, os.RemoveAll(dir+"/teams")) }, "teams/x/b.cue", ""},
		"a directory replaced": {func(t *testing.T, dir string) {
			check(t, os.Rename(dir+"/teams", dir+"/.old"))
			write(t, dir+"/teams/x/b.cue", "new")
		}, "teams/x/b.cue", "new"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir+"/a.cue", "old")
			write(t, dir+"/teams/x/b.cue", "old")
			d, _ := open(t, dir)
			seen := follow(t, d)
			first := until(t, seen, "the start", shows(t, d, "a.cue", "old"))
			if !strings.HasPrefix(first.Commit, "worktree-") || first.Trouble != nil || first.At.IsZero() || !strings.Contains(strings.Join(first.Notes, ""), dir) {
				t.Errorf("%+v", first)
			}
			tt.save(t, dir)
			s := until(t, seen, name, shows(t, d, tt.path, tt.content))
			if s.Commit == first.Commit {
				t.Errorf("another content has the same name %s", s.Commit)
			}
			// And where it went, the next save is seen too.
			write(t, filepath.Join(dir, filepath.Dir(tt.path), "next.cue"), "next")
			until(t, seen, "the next save", shows(t, d, filepath.Join(filepath.Dir(tt.path), "next.cue"), "next"))
		})
	}
}

// What does not matter is no news: neither what is hidden nor what CUE does not
// read. The name is a function of the files alone.
func TestWhatDoesNotMatter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/a.cue", "a")
	d, _ := open(t, dir)
	seen := follow(t, d)
	first := until(t, seen, "the start", shows(t, d, "a.cue", "a"))
	write(t, dir+"/.git/refs/heads/main", "x")
	write(t, dir+"/.git/x.cue", "x")
	write(t, dir+"/README", "x")
	write(t, dir+"/a.cue~", "x")
	write(t, dir+"/.a.cue.swp", "x")
	write(t, dir+"/a.cue", "a") // the same again
	d.Poke()
	for range 2 {
		d.Poke()
		if s := <-seen; s.Commit != first.Commit {
			t.Errorf("seen as %s, was %s", s.Commit, first.Commit)
		}
	}
	other := t.TempDir()
	write(t, other+"/a.cue", "a")
	twin, _ := open(t, other)
	if head, err := twin.Head(t.Context()); err != nil || head != first.Commit {
		t.Errorf("the same files elsewhere are %s, %v; want %s", head, err, first.Commit)
	}
	if _, err := d.Tree(t.Context(), "worktree-0"); err == nil {
		t.Error("there is a tree of a name that was never seen")
	}
}

// A burst of saves is few looks, and nothing of it is lost: not when there are
// more events than the system keeps, either.
func TestBurst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/a.cue", "a")
	d, r := open(t, dir)
	seen := follow(t, d)
	until(t, seen, "the start", shows(t, d, "a.cue", "a"))
	before, begin := r.n.Load(), time.Now()
	const files = 2000
	for i := range files {
		write(t, fmt.Sprintf("%s/d%d/f.cue", dir, i%50), fmt.Sprint(i))
	}
	until(t, seen, "the last of the burst", shows(t, d, fmt.Sprintf("d%d/f.cue", (files-1)%50), fmt.Sprint(files-1)))
	looks, took := r.n.Load()-before, time.Since(begin)
	// A look waits for 30 ms of silence, which a busy machine may bring about
	// between any two saves.
	if most := 3 + int64(took/(30*time.Millisecond)); looks > most {
		t.Errorf("%d looks in %s, want at most %d", looks, took, most)
	}
	t.Logf("%d saves in %s: %d looks", files, took, looks)
}

// Where the system has no watches left the directory is read every second, and
// the status says why and what to do.
func TestNoWatches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/a.cue", "a")
	var log bytes.Buffer
	var mu sync.Mutex
	d, err := worktree.Open(worktree.Config{Dir: dir, Read: compile.ReadDir, Poll: time.Hour, Log: slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil))})
	check(t, err)
	var full atomic.Bool
	full.Store(true)
	d.Limit(func() error {
		if full.Load() {
			return syscall.ENOSPC
		}
		return nil
	})
	seen := follow(t, d)
	s := until(t, seen, "the start", shows(t, d, "a.cue", "a"))
	if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "no space left on device") || !strings.Contains(notes, "read every 1s; raise the sysctl fs.inotify.max_user_watches") {
		t.Errorf("notes %s", notes)
	}
	write(t, dir+"/a.cue", "b")
	until(t, seen, "a save", shows(t, d, "a.cue", "b"))
	full.Store(false)
	until(t, seen, "the end of the shortage", func(s model.Seen) bool { return len(s.Notes) == 1 })
	write(t, dir+"/a.cue", "c")
	until(t, seen, "a save afterwards", shows(t, d, "a.cue", "c"))
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "cannot watch"); n != 1 || !strings.Contains(log.String(), "max_user_watches") {
		t.Errorf("logged %d times:\n%s", n, &log)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A directory that goes away is trouble; what was read before stays.
func TestAway(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "x")
	write(t, dir+"/a.cue", "a")
	link := dir + "-link"
	check(t, os.Symlink(dir, link))
	d, _ := open(t, link)
	seen := follow(t, d)
	first := until(t, seen, "the start", shows(t, d, "a.cue", "a"))
	check(t, os.Rename(dir, dir+"-away"))
	d.Poke()
	s := until(t, seen, "the trouble", func(s model.Seen) bool { return s.Trouble != nil })
	if s.Commit != first.Commit || !strings.Contains(s.Trouble.Error(), "no such file") || !strings.Contains(s.Trouble.Error(), "\nhint: ") {
		t.Errorf("%+v", s)
	}
	if !shows(t, d, "a.cue", "a")(s) {
		t.Error("what was read before is gone")
	}
	check(t, os.Rename(dir+"-away", dir))
	d.Poke()
	until(t, seen, "the end of the trouble", func(s model.Seen) bool { return s.Trouble == nil })
	write(t, dir+"/a.cue", "b")
	until(t, seen, "a save afterwards", shows(t, d, "a.cue", "b"))
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for path, want := range map[string]string{file: "is not a directory\nhint: ", file + "-not": "no such file or directory\nhint: "} {
		if _, err := worktree.Open(worktree.Config{Dir: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%s): %v", path, err)
		}
	}
}
