package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema/compile"
)

const (
	// cacheBytes bounds the files of the cache together.
	cacheBytes = 512 << 20
	// cacheName is the directory of the cache in that of git.
	cacheName = "muster-cache"
)

// fileCache keeps what packages were compiled to in the directory of git, so that it is
// gone with the clone and never committed. Several processes may use one at once: files are
// put there whole, under a name that stands for all they depend on. What is not what was
// put there, the compiler notices. No trouble with it is an error.
type fileCache struct {
	dir     string
	program string       // identifies this program
	saved   atomic.Int64 // bytes since it was pruned
}

// openCache returns the cache of the repository that dir lies in, nil if there is no
// directory of git that may be written.
func openCache(dir string) *fileCache {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	info, err := os.Stat(exe)
	if err != nil {
		return nil
	}
	in := git.Above(dir)
	if in == "" {
		return nil
	}
	c := &fileCache{dir: filepath.Join(in, cacheName), program: fmt.Sprintf("%s %d %d", version, info.Size(), info.ModTime().UnixNano())}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !isDirectory(c.dir) {
		return nil
	}
	return c
}

// isDirectory reports whether name is a directory, and no link to one.
func isDirectory(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}

func (c *fileCache) name(key string) string {
	sum := sha256.Sum256([]byte(c.program + "\x00" + key))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:]))
}

// Load returns the content of the file of a key.
func (c *fileCache) Load(key string) []byte {
	name := c.name(key)
	data, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(name, now, now) // what is used stays longest
	return data
}

// Save writes the file of a key. It need not outlast a loss of power.
func (c *fileCache) Save(key string, data []byte) {
	f, err := os.CreateTemp(c.dir, "new-")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if closed := f.Close(); err != nil || closed != nil {
		_ = os.Remove(f.Name())
		return
	}
	if err := os.Rename(f.Name(), c.name(key)); err != nil {
		_ = os.Remove(f.Name())
		return
	}
	// One that runs for days, such as muster lsp, writes much: it is not left for its end.
	if c.saved.Add(int64(len(data))) > cacheBytes/8 {
		c.saved.Store(0)
		c.prune(cacheBytes)
	}
}

// prune removes the files that were not used for longest when they are together more than
// is allowed, down to three quarters of it.
func (c *fileCache) prune(most int64) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	var files []fs.FileInfo
	var total int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
			total += info.Size()
		}
	}
	if total <= most {
		return
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, f := range files {
		if total <= most/4*3 {
			return
		}
		_ = os.Remove(filepath.Join(c.dir, f.Name()))
		total -= f.Size()
	}
}

var _ compile.Store = (*fileCache)(nil)
