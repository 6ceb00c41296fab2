package loop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema/atomicfile"
)

// Lock is a state directory that is ours: of all agents, by whatever path they
// name it, one has it at a time. The kernel gives it back when its process ends,
// however it ends.
type Lock struct {
	root string
	dir  *os.File // nil where the file system locks no directories
	file *os.File
}

// Take makes the state directory if it is not there, and takes its lock. The
// error is ErrInUse, with the pid, when another agent has it.
//
// The directory itself is locked: a file in it can be removed while it is locked,
// and the next agent would make another. The file says who has it.
func Take(root string) (*Lock, error) {
	if err := os.MkdirAll(root, dirMode); err != nil {
		return nil, fmt.Errorf("state directory %s: %w", root, err)
	}
	l := &Lock{root: root}
	if err := l.take(); err != nil {
		return nil, errors.Join(fmt.Errorf("state directory %s: %w", root, err), l.Close())
	}
	return l, nil
}

func (l *Lock) take() (err error) {
	name := filepath.Join(l.root, lockFile)
	if l.dir, err = os.Open(l.root); err != nil {
		return err
	}
	err = takeLock(l.dir)
	if slices.ContainsFunc([]error{syscall.EBADF, syscall.EINVAL, syscall.ENOLCK, syscall.EOPNOTSUPP}, func(e error) bool { return errors.Is(err, e) }) {
		err = l.dir.Close() // as over NFS: the file has to do
		l.dir = nil
	}
	if err != nil {
		return inUse(err, name)
	}
	if err := atomicfile.Aside(name); err != nil && !noRoom(err) && !noWrite(err) {
		return err
	}
	l.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, os.ErrPermission) && os.Chmod(name, 0o600) == nil {
		l.file, err = os.OpenFile(name, os.O_RDWR, 0)
	}
	if noRoom(err) || noWrite(err) {
		if l.file, err = os.Open(name); errors.Is(err, fs.ErrNotExist) && l.dir != nil {
			return nil // the directory has to do
		}
	}
	if err != nil {
		return err
	}
	if err := takeLock(l.file); err != nil {
		return inUse(err, name)
	}
	// It only tells who has it: a disk that is full, or cannot be written to, is no
	// reason not to start. What was there is written over before it is cut off.
	pid := fmt.Appendln(nil, os.Getpid())
	_, err = l.file.WriteAt(pid, 0)
	if err = errors.Join(err, l.file.Truncate(int64(len(pid)))); err != nil && !noRoom(err) && !noWrite(err) && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EBADF) {
		return fmt.Errorf("write %s: %w", lockFile, err)
	}
	return nil
}

// inUse makes ErrInUse of a lock that another has, with who that is.
func inUse(err error, name string) error {
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("lock: %w", err)
	}
	holder, _ := durable.ReadRegular(name) // empty while the holder has just begun
	if pid := strings.TrimSpace(string(holder)); pid != "" {
		return fmt.Errorf("%w (pid %s)", ErrInUse, pid)
	}
	return ErrInUse
}

// Close gives the lock back. It may be called more than once.
func (l *Lock) Close() error {
	var errs []error
	for _, f := range []**os.File{&l.file, &l.dir} {
		if *f != nil {
			// A child that is just being forked has the file, too, until its exec.
			_ = syscall.Flock(int((*f).Fd()), syscall.LOCK_UN)
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}

// A child that an agent was just forking when it was killed has the agent's
// lock until its exec.
const (
	lockFor   = 2 * time.Second // how long a held lock is waited for
	lockEvery = 10 * time.Millisecond
)

// takeLock takes f's lock; the error is EWOULDBLOCK when somebody has it.
func takeLock(f *os.File) error {
	for since := time.Now(); ; time.Sleep(lockEvery) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Since(since) > lockFor {
			return err
		}
	}
}
