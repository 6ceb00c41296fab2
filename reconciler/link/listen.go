package link

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

// ListenUnix listens on a unix socket that only this user (and root) can
// reach. The directory of path is created with mode 0700; one that exists must
// be this user's and closed to all others. A socket that a dead process left
// is removed; the error is ErrAnswered when somebody answers on it.
func ListenUnix(path string) (net.Listener, error) {
	if path == "" || strings.HasPrefix(path, "@") || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("socket %q: want the path of a file", path)
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket %s: the path has %d bytes and the system takes at most %d: choose a shorter directory",
			path, len(path), maxSocketPath)
	}
	dir, err := privateDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	defer dir.Close() // releases the lock
	// Two processes that start at once must not remove each other's socket.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("socket %s: lock its directory: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

// privateDir creates and opens a directory that is closed to other users.
func privateDir(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
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
	if int(st.Uid) != os.Geteuid() {
		return nil, errors.Join(fmt.Errorf("directory %s belongs to uid %d: want uid %d", path, st.Uid, os.Geteuid()), dir.Close())
	}
	if mode := st.Mode & 0o777; mode&0o077 != 0 {
		return nil, errors.Join(fmt.Errorf("directory %s has mode %04o: want 0700, so that no other user can connect", path, mode), dir.Close())
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
