package host

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"golang.org/x/sys/unix"
)

// The budget of one walk. What is beyond is left out, and said.
const (
	maxEntries = 500_000
	maxWalk    = 5 * time.Second
	// maxOpen is how many levels hold a descriptor; those above are opened again
	// from below, on the way back.
	maxOpen = 32
	// maxPending bounds the names of directories that are still to be walked, in
	// bytes.
	maxPending = 8 << 20
	// readNames is how much is read from a directory at once, in bytes.
	readNames = 1 << 16
	// largeFile and maxLarge say which files are remembered, in bytes, and how many:
	// one that is deleted while the walk goes on must not count as deleted and open,
	// too.
	largeFile = 16 << 10
	maxLarge  = 1 << 16
)

// Measure walks dirs, which lie on one file system, and adds up the blocks and the
// inodes of what is in them, and of files there that the processes of a task have
// deleted and still use. A file with several names counts once, a file with holes by
// its blocks. It follows no link and enters no other mount, and each step is taken
// from the directory above it or, on the way back, is the one that it came from: so
// whatever a task puts there or moves meanwhile, nothing else is counted, opened or
// waited for. Counting ends early when the inodes are more than a limit of disk
// allows; 0 is no limit. A directory that is not there takes nothing.
func Measure(dirs []string, of nodeagent.Processes, limit int64) (nodeagent.DiskUse, error) {
	w := walker{until: time.Now().Add(maxWalk), inodes: nodeagent.InodeLimit(limit), seen: map[uint64]bool{}}
	var errs []error
	for _, dir := range dirs {
		if err := w.top(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("measure %s: %w", dir, err))
		}
	}
	if w.rooted {
		w.deleted(of)
	}
	return w.use, errors.Join(errs...)
}

// walker is one measurement.
type walker struct {
	use     nodeagent.DiskUse
	rooted  bool   // device is known
	device  uint64 // the file system that counts
	until   time.Time
	inodes  int64 // the most that the task may have; 0: no limit
	entries int
	pending int             // bytes
	seen    map[uint64]bool // inodes with several names, and large ones
	buffer  []byte
	stack   []level
	closed  int // levels without a descriptor: so many of those below the first
}

// level is a directory that is being walked.
type level struct {
	fd     int // -1: closed, to be opened again from below
	inode  uint64
	offset int64    // where to read on, of one that is closed
	names  []string // directories in it that are still to be walked
	shut   bool     // its owner, the agent's own user, may not look into it: see unshut
	end    bool     // all of it was read
}

// statBlock is the unit of stx_blocks, whatever the file system.
const statBlock = 512

// stat returns what is known of an entry, without following a link or asking
// anybody but the kernel.
func stat(dir int, name string, flags int) (s unix.Statx_t, err error) {
	const want = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_NLINK | unix.STATX_UID | unix.STATX_INO | unix.STATX_BLOCKS
	err = unix.Statx(dir, name, flags|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, want, &s)
	return s, err
}

func deviceOf(s *unix.Statx_t) uint64 { return unix.Mkdev(s.Dev_major, s.Dev_minor) }

func isDir(s *unix.Statx_t) bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// add counts an inode, once.
func (w *walker) add(s *unix.Statx_t) {
	large := s.Blocks*statBlock >= largeFile && len(w.seen) < maxLarge
	if s.Nlink == 0 || !isDir(s) && (s.Nlink != 1 || large) {
		if w.seen[s.Ino] {
			return
		}
		w.seen[s.Ino] = true
	}
	w.use.Bytes += int64(s.Blocks) * statBlock
	w.use.Inodes++
}

// partly notes why something is left out.
func (w *walker) partly(format string, args ...any) {
	if w.use.Note == "" {
		w.use.Note = "at least: " + fmt.Sprintf(format, args...)
	}
}

// top walks one of the directories.
func (w *walker) top(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s, err := stat(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	if w.rooted && deviceOf(&s) != w.device {
		return errors.Join(errors.New("it is on another file system"), unix.Close(fd))
	}
	w.rooted, w.device = true, deviceOf(&s)
	w.add(&s)
	w.push(fd, s.Ino, false)
	for len(w.stack) > 0 {
		w.step()
	}
	return nil
}

// push begins a directory, and closes one far above it if too many are open: never
// the first, from which the walk can always go on.
func (w *walker) push(fd int, inode uint64, shut bool) {
	w.stack = append(w.stack, level{fd: fd, inode: inode, shut: shut})
	if len(w.stack)-w.closed <= maxOpen {
		return
	}
	w.closed++
	l := &w.stack[w.closed]
	var err error
	if l.offset, err = unix.Seek(l.fd, 0, unix.SEEK_CUR); err != nil {
		w.partly("a directory cannot be read: %v", err)
		l.end = true
	}
	_ = unix.Close(l.fd)
	l.fd = -1
}

// step does the next thing in the innermost directory.
func (w *walker) step() {
	l := &w.stack[len(w.stack)-1]
	switch {
	case w.over():
		w.drop(0)
	case len(l.names) > 0:
		name := l.names[len(l.names)-1]
		l.names = l.names[:len(l.names)-1]
		w.pending -= len(name)
		shut := l.unshut()
		w.enter(l.fd, name) // which may move l
		shut()
	case !l.end:
		shut := l.unshut()
		w.read(l)
		shut()
	default:
		w.pop()
	}
}

// over reports whether the budget is used up, and says so.
func (w *walker) over() bool {
	switch {
	case w.inodes > 0 && w.use.Inodes > w.inodes:
		w.partly("it was not counted beyond the limit of %d inodes", w.inodes)
	case w.entries > maxEntries:
		w.partly("there are more than %d files", maxEntries)
	case time.Now().After(w.until):
		w.partly("counting took more than %s", maxWalk)
	default:
		return false
	}
	return true
}

// read counts some of what is in l.
func (w *walker) read(l *level) {
	if w.buffer == nil {
		w.buffer = make([]byte, readNames)
	}
	n, err := unix.ReadDirent(l.fd, w.buffer)
	if err != nil || n <= 0 {
		if err != nil && !errors.Is(err, unix.ENOENT) {
			w.partly("a directory cannot be read: %v", err)
		}
		l.end = true
		return
	}
	_, _, names := unix.ParseDirent(w.buffer[:n], -1, nil)
	for _, name := range names {
		w.entries++
		s, err := stat(l.fd, name, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || !w.inside(&s) {
			continue // it is gone, or is not the task's
		}
		w.add(&s)
		if !isDir(&s) {
			continue
		}
		if w.pending += len(name); w.pending > maxPending {
			w.pending -= len(name)
			w.partly("there are too many directories")
			continue
		}
		l.names = append(l.names, name)
	}
}

// inside reports whether an entry lies on the file system that counts, and nothing is
// mounted on it.
func (w *walker) inside(s *unix.Statx_t) bool {
	return deviceOf(s) == w.device && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0
}

// enter begins the directory name in parent.
func (w *walker) enter(parent int, name string) {
	fd, err := openDir(parent, name)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
			w.partly("a directory cannot be opened: %v", err)
		}
		return
	}
	s, err := stat(fd, "", unix.AT_EMPTY_PATH)
	if err != nil || !w.inside(&s) { // something was mounted in between
		_ = unix.Close(fd)
		return
	}
	// Where the agent is no root, a task could hide files behind it.
	shut := s.Mode&ownerLooks != ownerLooks && int(s.Uid) == os.Geteuid() && s.Uid != 0
	w.push(fd, s.Ino, shut)
}

const openDirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openDir opens a directory, also one that its owner, who is the agent's own user, may
// not look into.
func openDir(parent int, name string) (fd int, err error) {
	fd, err = unix.Openat(parent, name, openDirFlags, 0)
	if !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	path, failed := unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if failed != nil {
		return -1, err
	}
	defer unix.Close(path)
	shut := unshut(path)
	defer shut()
	return unix.Openat(parent, name, openDirFlags, 0)
}

// ownerLooks is what a directory's owner needs to look into it.
const ownerLooks = 0o500

// unshut lets the owner of a directory look into it, if that is the agent's own user,
// until what it returns is called.
func unshut(fd int) (shut func()) {
	s, err := stat(fd, "", unix.AT_EMPTY_PATH)
	if err != nil || int(s.Uid) != os.Geteuid() {
		return func() {}
	}
	itself, mode := fmt.Sprintf("/proc/self/fd/%d", fd), uint32(s.Mode)&0o7777
	if unix.Chmod(itself, mode|ownerLooks) != nil {
		return func() {}
	}
	return func() { _ = unix.Chmod(itself, mode) }
}

// unshut is that of a level that is shut, and has a descriptor.
func (l *level) unshut() (shut func()) {
	if !l.shut || l.fd < 0 {
		return func() {}
	}
	return unshut(l.fd)
}

// pop ends the innermost directory, and opens the one above it again if that was
// closed. If it is another one by now, the walk goes on with the next that is open.
func (w *walker) pop() {
	last := len(w.stack) - 1
	from := w.stack[last]
	w.stack = w.stack[:last]
	defer unix.Close(from.fd)
	if last == 0 || w.stack[last-1].fd >= 0 {
		return
	}
	shut := from.unshut()
	climbed := w.climb(from.fd, &w.stack[last-1])
	shut()
	if !climbed {
		w.partly("directories were moved while they were counted")
		w.drop(1)
		return
	}
	w.closed--
}

// climb opens l, from the directory in it that the walk has been in.
func (w *walker) climb(from int, l *level) bool {
	fd, err := openDir(from, "..")
	if err != nil {
		return false
	}
	s, err := stat(fd, "", unix.AT_EMPTY_PATH)
	if err == nil && s.Ino == l.inode && deviceOf(&s) == w.device {
		if _, err = unix.Seek(fd, l.offset, unix.SEEK_SET); err == nil {
			l.fd = fd
			return true
		}
	}
	_ = unix.Close(fd)
	return false
}

// drop gives up all levels from one on.
func (w *walker) drop(from int) {
	for _, l := range w.stack[from:] {
		for _, name := range l.names {
			w.pending -= len(name)
		}
		if l.fd >= 0 {
			_ = unix.Close(l.fd)
		}
	}
	w.stack, w.closed = w.stack[:from], 0
}
