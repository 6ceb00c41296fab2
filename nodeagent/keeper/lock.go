package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errHeld says that another process has the directory's lock.
var errHeld = errors.New("its lock is held")

// claim takes the lock of dir. Closing the file gives it back, and so does the
// holder's death: no child inherits it. The error is errHeld when it is taken.
func claim(dir string) (*os.File, error) {
	name := filepath.Join(dir, LockFile)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		// Who has it has made it before the disk took nothing more; and no keeper
		// begins where there is none.
		if f, err = os.Open(name); errors.Is(err, os.ErrNotExist) {
			f, err = os.Open(dir)
		}
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", dir, errHeld)
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}
