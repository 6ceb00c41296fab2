package runtime

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// The budget of one walk. What is beyond is left out, and said.
const (
	maxEntries = 500_000
	maxDepth   = 256 // each level holds a descriptor
	maxWalk    = 5 * time.Second
	// readNames is how many names are read from a directory at once.
	readNames = 1 << 16
)

// DiskUse is what a directory takes of the file system.
type DiskUse struct {
	Bytes int64
	Note  string // says when Bytes is only a part
}

// Measure walks dir and adds up the blocks of what is in it; a file with several
// names counts once. It follows no link and enters no other file system, so
// whatever a task puts there, nothing else is counted or opened: each step is
// taken from the directory above it. Files that are deleted and still open are
// not seen.
func Measure(dir string) (DiskUse, error) {
	w := walker{until: time.Now().Add(maxWalk), seen: map[uint64]bool{}}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return DiskUse{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return DiskUse{}, errors.Join(fmt.Errorf("measure %s: %w", dir, err), unix.Close(fd))
	}
	w.device = s.Dev
	w.add(&s)
	w.walk(fd, 1)
	return DiskUse{Bytes: w.bytes, Note: w.note}, nil
}

type walker struct {
	device  uint64
	until   time.Time
	entries int
	bytes   int64
	seen    map[uint64]bool // inodes with several names
	note    string
	buffer  []byte
}

// statBlock is the unit of st_blocks, whatever the file system.
const statBlock = 512

func (w *walker) add(s *unix.Stat_t) {
	if s.Nlink > 1 && s.Mode&unix.S_IFMT != unix.S_IFDIR {
		if w.seen[s.Ino] {
			return
		}
		w.seen[s.Ino] = true
	}
	w.bytes += s.Blocks * statBlock
}

// partly notes why the walk has left something out.
func (w *walker) partly(format string, args ...any) {
	if w.note == "" {
		w.note = "at least: " + fmt.Sprintf(format, args...)
	}
}

// walk adds up what is in the directory fd, which it closes.
func (w *walker) walk(fd, depth int) {
	defer unix.Close(fd)
	if w.buffer == nil {
		w.buffer = make([]byte, readNames)
	}
	for {
		n, err := unix.ReadDirent(fd, w.buffer)
		if err != nil || n <= 0 {
			if err != nil && !errors.Is(err, unix.ENOENT) {
				w.partly("a directory cannot be read: %v", err)
			}
			return
		}
		// The names are taken out before the buffer is used again, below.
		_, _, names := unix.ParseDirent(w.buffer[:n], -1, nil)
		for _, name := range names {
			if w.entries++; w.entries > maxEntries {
				w.partly("there are more than %d files", maxEntries)
				return
			}
			if w.entries%1024 == 0 && time.Now().After(w.until) {
				w.partly("counting took more than %s", maxWalk)
				w.entries = maxEntries
				return
			}
			w.entry(fd, name, depth)
		}
	}
}

func (w *walker) entry(parent int, name string, depth int) {
	var s unix.Stat_t
	if err := unix.Fstatat(parent, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return // it is gone
	}
	if s.Dev != w.device {
		return
	}
	w.add(&s)
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if depth == maxDepth {
		w.partly("directories are nested more than %d deep", maxDepth)
		return
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
			w.partly("a directory cannot be opened: %v", err)
		}
		return
	}
	var opened unix.Stat_t
	if unix.Fstat(fd, &opened) != nil || opened.Dev != w.device {
		_ = unix.Close(fd) // something was mounted in between
		return
	}
	w.walk(fd, depth+1)
}
