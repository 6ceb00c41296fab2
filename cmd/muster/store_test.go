package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/git"
)

// cacheIn returns a cache in a new work tree.
func cacheIn(t *testing.T) (*fileCache, string) {
	t.Helper()
	dir := t.TempDir()
	gitIn(t, filepath.Join(dir, ".git"))
	c := openCache(dir)
	if c == nil {
		t.Fatal("no cache")
	}
	return c, dir
}

// gitIn makes a directory of git, as far as that is looked at.
func gitIn(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "HEAD"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFileCache(t *testing.T) {
	t.Parallel()
	c, dir := cacheIn(t)
	c.Save("a", []byte("one"))
	c.Save("a", []byte("two"))
	below := filepath.Join(dir, "teams")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	again := openCache(below)
	if got := again.Load("a"); string(got) != "two" {
		t.Errorf("got %q", got)
	}
	if got := again.Load("b"); got != nil {
		t.Errorf("got %q of what was not saved", got)
	}
	again.program += "another"
	if got := again.Load("a"); got != nil {
		t.Errorf("another program got %q", got)
	}
}

// TestFileCacheBound: what was not used for longest is removed, and of several that write
// none reads what is torn.
func TestFileCacheBound(t *testing.T) {
	t.Parallel()
	c, _ := cacheIn(t)
	for i := range 10 {
		key := fmt.Sprint(i)
		c.Save(key, make([]byte, 100))
		old := time.Now().Add(time.Duration(i-20) * time.Hour)
		if err := os.Chtimes(c.name(key), old, old); err != nil {
			t.Fatal(err)
		}
	}
	c.Load("0")
	c.prune(1000)
	if c.Load("1") == nil {
		t.Error("what has room was removed")
	}
	old := time.Now().Add(-19 * time.Hour)
	if err := os.Chtimes(c.name("1"), old, old); err != nil {
		t.Fatal(err)
	}
	c.prune(999)
	for i, want := range []bool{true, false, false, false, true, true, true, true, true, true} {
		if got := c.Load(fmt.Sprint(i)) != nil; got != want {
			t.Errorf("%d is there: %v, want %v", i, got, want)
		}
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				c.Save("k", bytes.Repeat([]byte{byte('a' + i)}, 10_000))
				if b := c.Load("k"); len(b) != 10_000 || bytes.Count(b, b[:1]) != len(b) {
					t.Errorf("%d bytes, torn", len(b))
				}
			}
		})
	}
	wg.Wait()
}

// TestFileCacheLongRun: one process that saves ever more keeps to the bound, without a word from
// who uses it.
func TestFileCacheLongRun(t *testing.T) {
	t.Parallel()
	c, _ := cacheIn(t)
	const each = cacheBytes / 4
	for i := range 6 {
		name := filepath.Join(c.dir, fmt.Sprint("earlier", i))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, each); err != nil { // with holes: it takes no room
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Time{}, time.Now().Add(-time.Minute)); err != nil { // files of one moment have no order
			t.Fatal(err)
		}
	}
	c.Save("a", make([]byte, 100))
	if n := files(t, c); n != 7 {
		t.Errorf("%d files after a small one", n)
	}
	c.saved.Store(cacheBytes / 8)
	c.Save("b", make([]byte, 100))
	if n := files(t, c); n > 5 || c.Load("b") == nil {
		t.Errorf("%d files", n)
	}
}

// files returns how many files a cache has.
func files(t *testing.T, c *fileCache) int {
	t.Helper()
	all, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestNoCache: without a directory of git, and in one that cannot be written, there is none.
func TestNoCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if git.Above(dir) == "" { // the temporary directory is in no work tree
		if c := openCache(dir); c != nil {
			t.Errorf("a cache in %s", c.dir)
		}
	}
	gitIn(t, filepath.Join(dir, "real"))
	if err := os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: real\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := openCache(dir); c == nil || filepath.Dir(c.dir) != filepath.Join(dir, "real") {
		t.Errorf("the cache of a further work tree: %v", c)
	}
	if err := os.RemoveAll(filepath.Join(dir, "real", cacheName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "real", cacheName)); err != nil {
		t.Fatal(err)
	}
	if c := openCache(dir); c != nil {
		t.Errorf("a cache through a link: %s", c.dir)
	}
}
