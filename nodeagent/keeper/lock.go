package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/atomicfile"
)

// errHeld says that a living keeper has the directory.
var errHeld = errors.New("its lock is held")

// lock is an incarnation's directory that is ours. The directory itself is locked,
// and the file LockFile in it: that is what keepers of earlier releases have, and
// what there is where directories cannot be locked (NFS). A file alone can be
// removed while it is locked, and the next comer would make another.
type lock struct{ files []*os.File }

// Close gives the lock back.
func (l *lock) Close() error {
	var errs []error
	for _, f := range l.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// claim takes the lock of dir. Closing it gives it back, and so does the holder's
// death: no child inherits it. The error is errHeld when it is taken.
func claim(dir string) (*lock, error) {
	l := &lock{}
	for _, open := range []func(string) (*os.File, error){os.Open, openLock} {
		if err := l.take(dir, open); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// retake takes what of dir's lock is not ours since it was replaced.
func (l *lock) retake(dir string) {
	for _, open := range []func(string) (*os.File, error){os.Open, openLock} {
		_ = l.take(dir, open) // held: by us
	}
}

func (l *lock) take(dir string, open func(string) (*os.File, error)) error {
	f, err := open(dir)
	if f == nil {
		return err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		l.files = append(l.files, f)
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("%s: %w", dir, errHeld)
	case f.Name() == dir: // of a file system that locks no directories
		err = nil
	default:
		err = fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return errors.Join(err, f.Close())
}

// openLock opens the lock file of dir, whatever is in its place. It is nil where there
// is none, and none can be made: who has one has made it before the disk took nothing
// more, and no keeper begins there.
func openLock(dir string) (*os.File, error) {
	name := filepath.Join(dir, LockFile)
	_ = atomicfile.Aside(name) // or it cannot be opened
	const flags = os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(name, 0o600) == nil {
		f, err = os.OpenFile(name, flags, 0o600)
	}
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		if f, err = os.Open(name); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}
