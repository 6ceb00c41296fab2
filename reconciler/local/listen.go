package local

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path of a unix socket, in bytes: sun_path of
// unix(7) holds 108 with the final zero.
const maxSocketPath = 107

// ErrAnswered says that a process serves the socket already.
var ErrAnswered = errors.New("a running process answers on it")

// The modes of sockets.
const (
	private fs.FileMode = 0o600
	open    fs.FileMode = 0o666
)

// Listen listens on a unix socket that only this user (and root) can reach. The
// directory of path is created with mode 0700; one that exists must be this
// user's and closed to all others. A socket that a dead process left is removed;
// the error is ErrAnswered when somebody answers on it.
func Listen(path string) (net.Listener, error) { return listen(path, private) }

// ListenOpen is Listen for a socket that any user may connect to, so whoever
// serves it must ask who that is. Its directory must be one in which no other user
// can put a socket in its place; one that is made has mode 0755.
func ListenOpen(path string) (net.Listener, error) { return listen(path, open) }

func listen(path string, mode fs.FileMode) (net.Listener, error) {
	if path == "" || strings.HasPrefix(path, "@") || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("socket %q: want the path of a file", path)
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket %s: the path has %d bytes and the system takes at most %d: choose a shorter directory",
			path, len(path), maxSocketPath)
	}
	dir, err := directory(filepath.Dir(path), mode)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	defer dir.Close() // releases the lock
	// Two processes that start at once must not remove each other's socket. This lock
	// says of nobody that the directory is its own: it is waited for, and given back
	// once the socket is there, so it is no schema/filelock. Where other users can open
	// the directory they could hold it for ever.
	err = nil
	if mode == private {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s: lock its directory: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

// directory creates and opens the directory of a socket of a mode. One that exists
// is closed to other users, or for an open socket to what they could change.
func directory(path string, socket fs.FileMode) (*os.File, error) {
	made := fs.FileMode(0o700)
	if socket == open {
		made = 0o755
	}
	if err := os.MkdirAll(path, made); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w: want a directory that is no link", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("directory %s: %w", path, err), dir.Close())
	}
	if int(st.Uid) != os.Geteuid() && (socket == private || st.Uid != 0) {
		return nil, errors.Join(fmt.Errorf("directory %s belongs to uid %d: want uid %d", path, st.Uid, os.Geteuid()), dir.Close())
	}
	switch mode := st.Mode & 0o777; {
	case socket == private && mode&0o077 != 0:
		return nil, errors.Join(fmt.Errorf("directory %s has mode %04o: want 0700, so that no other user can connect", path, mode), dir.Close())
	case mode&0o022 != 0:
		return nil, errors.Join(fmt.Errorf("directory %s has mode %04o: want 0755 or less, so that no other user can put a socket of its own there", path, mode), dir.Close())
	}
	return dir, nil
}

// removeStale removes the socket at path if nobody answers on it.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("something else is there (%v)", info.Mode())
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(ErrAnswered, c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) { // a full queue is an answer too
		return fmt.Errorf("%w, or may do so: %w", ErrAnswered, err)
	}
	return os.Remove(path)
}
