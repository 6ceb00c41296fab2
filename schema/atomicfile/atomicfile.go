package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Write makes data the content of the file name. After a crash at any time the
// file holds data, or what it held before; once Write has returned nil, data. One
// process writes a file at a time; WriteFrom is for several.
func Write(name string, data []byte, mode fs.FileMode) error {
	temp := name + stagedSuffix
	if err := Stage(temp, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := Rename(temp, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// WriteFrom is Write for what content writes, which may be long, and for files that
// several processes may write at once: one of them wins. Nothing is left beside the
// file after an error, and its mode is mode whatever the umask. What content writes is
// not buffered.
func WriteFrom(name string, mode fs.FileMode, content func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*"+stagedSuffix) // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	err = errors.Join(content(f), f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, errors.Join(err, os.Remove(f.Name())))
	}
	if err := SyncDir(filepath.Dir(name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// stagedSuffix ends the names of files that are being written.
const stagedSuffix = ".new"

// Stage writes a file that is not in use yet, and waits until the disk has its
// content; whether it has its name is for Rename. It takes the room that the file
// has already before it asks for more.
func Stage(name string, data []byte, mode fs.FileMode) error {
	f, err := stage(name, mode)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Truncate(int64(len(data)))
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// stage opens a file that is not in use, whatever is at its name.
func stage(name string, mode fs.FileMode) (*os.File, error) {
	if err := Aside(name); err != nil {
		return nil, err
	}
	const flags = os.O_WRONLY | os.O_CREATE | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err := os.OpenFile(name, flags, mode)
	if errors.Is(err, fs.ErrPermission) && os.Remove(name) == nil { // of an ordinary user, with another mode
		f, err = os.OpenFile(name, flags, mode)
	}
	return f, err
}

// Reserve has a later Write to name find the room for that many bytes, whatever
// else fills the disk until then: as far as the file system lets it, which may
// write each byte to a new place (btrfs).
func Reserve(name string, bytes int64, mode fs.FileMode) error {
	return Allocate(name+stagedSuffix, bytes, mode)
}

// Allocate makes a file that has room for that many bytes, if it is not there.
func Allocate(name string, bytes int64, mode fs.FileMode) error {
	f, err := stage(name, mode)
	if err != nil {
		return err
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); { // Go's own signals cut it short
		err = syscall.Fallocate(int(f.Fd()), 0, 0, bytes)
	}
	if errors.Is(err, syscall.EOPNOTSUPP) {
		_, err = f.Write(make([]byte, bytes))
	}
	if err != nil {
		err = fmt.Errorf("reserve room for %s: %w", name, err)
	}
	return errors.Join(err, f.Close())
}

// Rename renames a file within a directory, and waits until the disk has the new
// name. A directory in its place is moved aside.
func Rename(from, to string) error {
	if err := Replace(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// Replace is Rename, but does not wait for the disk.
func Replace(from, to string) error {
	err := os.Rename(from, to)
	if info, failed := os.Lstat(to); err != nil && failed == nil && info.IsDir() {
		if err := MoveAside(to); err != nil {
			return err
		}
		err = os.Rename(from, to)
	}
	return err
}

// Place closes a file that was written, and gives it its name, in a directory of the same file
// system, when the disk has its content. It does not wait for the disk to have the name. After an
// error the file is closed, and keeps the name that it had.
func Place(f *os.File, name string) error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.Rename(f.Name(), name)
}

// SyncDir waits until the disk has the names of a directory as they are.
func SyncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
