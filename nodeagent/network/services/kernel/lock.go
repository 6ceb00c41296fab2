package kernel

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/filelock"
)

// Lock takes the lock of those who program services of a cell with this name in the network namespace of the
// calling thread; dir is the directory of all such locks, which is made. Closing gives it back, as
// does the end of the process. It errs when another process has it.
func Lock(dir, cell string) (io.Closer, error) {
	var at unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &at); err != nil {
		return nil, fmt.Errorf("network namespace of this thread: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("services-%s-%d", cell, at.Ino)
	lock, err := filelock.Take(filelock.Config{Dir: dir, File: name, Owner: strconv.Itoa(os.Getpid())})
	if by := (*filelock.HeldError)(nil); errors.As(err, &by) {
		pid := ""
		if by.Owner != "" { // it has just begun
			pid = " (pid " + by.Owner + ")"
		}
		return nil, errors.New("another agent of a cell with this name programs services here" + pid)
	}
	if err != nil {
		return nil, err // not a nil *Lock in an interface
	}
	return &held{lock, filepath.Join(dir, name)}, nil
}

// held is a lock with its file.
type held struct {
	*filelock.Lock
	file string
}

// Close gives the lock back. The file goes while it is locked: who waits for it finds that it is not the one
// that the name leads to any more, and makes another.
func (h *held) Close() error {
	err := os.Remove(h.file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, h.Lock.Close())
}
