package loop

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/musterhq/muster/schema/atomicfile"
)

// ballastDir has files that are kept to be given up: room, and inodes, that the agent
// has on a disk which others have filled. A file of it becomes what the agent has to
// write, by its name alone: what was freed first would be taken by who fills the disk.
const ballastDir = "ballast"

// ballastFile is the size of each, in bytes: more than all but few of the agent's
// files have.
const ballastFile = 64 << 10

// ballast is that directory. Its methods may be called from any goroutine.
type ballast struct {
	dir   string
	files int // that shall be there

	mu   sync.Mutex // guards what follows
	left []string
	last int // the name that was given last
}

// openBallast finds what there is of a ballast of that many bytes, 0 for none.
func openBallast(dir string, bytes int64) *ballast {
	b := &ballast{dir: dir, files: int(bytes / ballastFile)}
	names, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is fine
	for _, name := range names {
		if n, err := strconv.Atoi(filepath.Base(name)); err == nil {
			b.left, b.last = append(b.left, name), max(b.last, n)
		}
	}
	return b
}

// fill makes the files that are missing, as far as there is room, and removes what
// is too much.
func (b *ballast) fill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.left) < b.files {
		if err := os.Mkdir(b.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	for len(b.left) < b.files {
		b.last++
		name := filepath.Join(b.dir, strconv.Itoa(b.last))
		if err := atomicfile.Allocate(name, ballastFile, 0o600); err != nil {
			return errors.Join(err, gone(os.Remove(name)))
		}
		b.left = append(b.left, name)
	}
	for len(b.left) > b.files {
		if err := b.give(os.Remove); err != nil {
			return err
		}
	}
	return nil
}

// give takes a file out of the ballast.
func (b *ballast) give(use func(name string) error) error {
	last := len(b.left) - 1
	err := use(b.left[last])
	b.left = slices.Delete(b.left, last, last+1)
	return err
}

// become makes a file of the ballast the file name; false if there is none.
func (b *ballast) become(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.left) > 0 {
		if b.give(func(file string) error { return os.Rename(file, name) }) == nil {
			return true
		}
	}
	return false
}

// free gives up half of what there is, for a file that is larger than one of the
// ballast; false if there is nothing.
func (b *ballast) free() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	freed := false
	for range (len(b.left) + 1) / 2 {
		freed = b.give(os.Remove) == nil || freed
	}
	return freed
}

// stage is atomicfile.Stage on a disk that may be full.
func (d *disk) stage(name string, content []byte) error {
	err := atomicfile.Stage(name, content, 0o600)
	if noRoom(err) && d.ballast.become(name) {
		err = atomicfile.Stage(name, content, 0o600)
	}
	for noRoom(err) && d.ballast.free() {
		err = atomicfile.Stage(name, content, 0o600)
	}
	return err
}

// noRoom reports whether a write failed since the disk, or what the agent may have of
// it, is full: of bytes or of inodes.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// noWrite reports whether a write failed since nothing can be written to the disk.
func noWrite(err error) bool { return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EIO) }
