package filelock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/schema/atomicfile"
)

// ErrHeld is the error of a lock that another process has. It may be had for the moment
// by a child that the holder was just forking when it was killed, until its exec.
var ErrHeld = errors.New("its lock is held")

// HeldError is ErrHeld with who has the lock.
type HeldError struct {
	Dir   string
	Owner string // what the holder wrote as its Config.Owner; "" if it is not known
}

// Error implements error.
func (e *HeldError) Error() string { return e.Dir + ": " + ErrHeld.Error() }

// Unwrap returns ErrHeld.
func (*HeldError) Unwrap() error { return ErrHeld }

// Config says what is locked and how.
type Config struct {
	Dir  string // it must exist
	File string // the name of the lock file in it, which is made with mode 0600
	// Whole locks the directory itself, too, where its file system does so (NFS does
	// not): a file can be removed while it is locked, and the next process would make
	// another. A disk that is full or read-only is then no obstacle, since the file
	// need not be made or written to. Nothing else may lock the directory.
	Whole bool
	// Look leaves a file that is not there unmade where Whole has locked the directory:
	// whoever comes after sees from the file whether others than those that look have
	// had the lock.
	Look bool
	// Owner is written to the file for who is refused; "" writes nothing.
	Owner string
	// Wait is how long a lock that is held is waited for; 0: not at all.
	Wait time.Duration
}

// retryEvery is how often a lock that is held is asked for.
const retryEvery = 10 * time.Millisecond

// replacedTimes bounds how often a file is opened again that was replaced before it was
// locked. Each time, somebody has removed it within microseconds.
const replacedTimes = 100

// Lock is the lock of a directory.
type Lock struct {
	cfg   Config
	files []*os.File // that are locked
}

// Take takes the lock of a directory. The error is a *HeldError, which is ErrHeld, when
// another process has it.
func Take(cfg Config) (*Lock, error) {
	l := &Lock{cfg: cfg}
	if err := l.take(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lock) take() error {
	if l.cfg.Whole {
		if err := l.lock(l.cfg.Dir, os.Open, l.cfg.Wait); err != nil && !cannotLock(err) {
			return err
		}
	}
	name := filepath.Join(l.cfg.Dir, l.cfg.File)
	if l.cfg.Look && len(l.files) > 0 {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err := l.lock(name, l.open, l.cfg.Wait); err != nil {
		if len(l.files) > 0 && unwritable(err) {
			return nil // the directory has to do
		}
		return err
	}
	if l.cfg.Owner == "" {
		return nil
	}
	// What was there is written over before it is cut off: a full disk has room for it.
	f, text := l.files[len(l.files)-1], []byte(l.cfg.Owner+"\n")
	_, err := f.WriteAt(text, 0)
	err = errors.Join(err, f.Truncate(int64(len(text))))
	readOnly := isAny(err, syscall.EBADF, syscall.EINVAL) // what open had to take
	if err != nil && !(l.cfg.Whole && (readOnly || unwritable(err))) {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Retake takes what was put in the place of the directory or of its lock file since they
// were locked, as far as nobody else has it. It waits for nobody.
func (l *Lock) Retake() {
	_ = l.lock(l.cfg.Dir, os.Open, 0) // held: by us
	_ = l.lock(filepath.Join(l.cfg.Dir, l.cfg.File), l.open, 0)
}

// lock opens the file and locks it, and goes on until what it has locked is what the
// name leads to.
func (l *Lock) lock(name string, open func(string) (*os.File, error), wait time.Duration) error {
	for range replacedTimes {
		f, err := open(name)
		if err != nil {
			return err
		}
		if err := l.flock(f, wait); err != nil {
			return errors.Join(err, f.Close())
		}
		is, err := os.Stat(name)
		if has, failed := f.Stat(); err == nil && failed == nil && os.SameFile(has, is) {
			l.files = append(l.files, f)
			return nil
		}
		if err := unlock(f); err != nil {
			return err
		}
	}
	return fmt.Errorf("lock %s: it is replaced again and again", name)
}

// flock locks f.
func (l *Lock) flock(f *os.File, wait time.Duration) error {
	for since := time.Now(); ; time.Sleep(retryEvery) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		case time.Since(since) >= wait:
			return &HeldError{Dir: l.cfg.Dir, Owner: owner(filepath.Join(l.cfg.Dir, l.cfg.File))}
		}
	}
}

// open opens the lock file, whatever is in its place.
func (l *Lock) open(name string) (*os.File, error) {
	if err := atomicfile.Aside(name); err != nil && !unwritable(err) {
		return nil, err
	}
	const flags = os.O_RDWR | os.O_CREATE | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(name, 0o600) == nil {
		f, err = os.OpenFile(name, flags, 0o600)
	}
	if l.cfg.Whole && unwritable(err) {
		if f, failed := os.Open(name); failed == nil {
			return f, nil
		}
	}
	return f, err
}

// Close gives the lock back. It may be called more than once.
func (l *Lock) Close() error {
	var errs []error
	for _, f := range slices.Backward(l.files) {
		errs = append(errs, unlock(f))
	}
	l.files = nil
	return errors.Join(errs...)
}

// unlock gives a lock back, also if a child that is just being forked has the file, too,
// until its exec.
func unlock(f *os.File) error {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return f.Close()
}

// ownerBytes is the most that is read of who has a lock.
const ownerBytes = 256

// owner returns what the holder of a lock file wrote into it; "" while it has just
// begun, and if it is no file any more.
func owner(name string) string {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, ownerBytes))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// cannotLock reports whether a file system locks no directories, as NFS.
func cannotLock(err error) bool {
	return isAny(err, syscall.EBADF, syscall.EINVAL, syscall.ENOLCK, syscall.EOPNOTSUPP)
}

// unwritable reports whether a disk is full, read-only or broken.
func unwritable(err error) bool {
	return isAny(err, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO)
}

func isAny(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}
