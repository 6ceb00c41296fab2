package trash

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// batch is how many names of a directory are read at once.
const batch = 1024

// folder is an open directory of which entries are removed. Those of its
// directories that hold more than files are moved to names that unused gives.
type folder struct {
	f      *os.File
	unused func() string
}

// remove removes the entry called name, and moves what it has of directories that
// are not empty up into d.
func (d folder) remove(ctx context.Context, name string) error {
	if gone, err := unlink(d.f, name); gone || err != nil {
		return err
	}
	sub, err := openDir(d.f, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	for ctx.Err() == nil {
		// What is removed while a directory is read may hide entries from the
		// reader, so it is read until nothing is found.
		n, err := d.empty(ctx, sub)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return ignoreMissing(unix.Unlinkat(int(d.f.Fd()), name, unix.AT_REMOVEDIR))
}

// empty reads sub from its beginning to its end, removes what is removed at once
// and moves the rest to d; n counts what was there.
func (d folder) empty(ctx context.Context, sub *os.File) (n int, err error) {
	if _, err := sub.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	for ctx.Err() == nil {
		names, err := sub.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
		n += len(names)
		for _, child := range names {
			gone, err := unlink(sub, child)
			if err == nil && !gone {
				err = d.moveUp(sub, child)
			}
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// moveUp moves a directory of sub into d. A directory's own permission is needed to
// give it another parent.
func (d folder) moveUp(sub *os.File, child string) error {
	for permitted := false; ; {
		err := unix.Renameat(int(sub.Fd()), child, int(d.f.Fd()), d.unused())
		switch {
		case taken(err):
		case errors.Is(err, unix.EACCES) && !permitted:
			permitted = true
			if err := unix.Fchmodat(int(sub.Fd()), child, 0o700, 0); err != nil {
				return err
			}
		default:
			return ignoreMissing(err)
		}
	}
}

// unlink removes a file, a link or an empty directory. It reports false for a
// directory that is not empty, or into which one cannot look.
func unlink(dir *os.File, name string) (gone bool, err error) {
	err = ignoreMissing(unix.Unlinkat(int(dir.Fd()), name, 0))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return false, err
	}
	removed := ignoreMissing(unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR))
	switch {
	case removed == nil:
		return true, nil
	case errors.Is(removed, unix.ENOTEMPTY), errors.Is(removed, unix.EEXIST):
		return false, nil
	case errors.Is(removed, unix.ENOTDIR):
		return false, err // a file that may not be removed
	}
	return false, removed
}

// openDir opens a directory of dir, whatever permissions its owner gave it.
func openDir(dir *os.File, name string) (*os.File, error) {
	if os.Geteuid() != 0 { // root needs none
		// name is a directory and nobody changes it any more, so it is no link.
		if err := unix.Fchmodat(int(dir.Fd()), name, 0o700, 0); err != nil {
			return nil, err
		}
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
