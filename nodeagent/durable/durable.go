package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes data the content of the file name. After a crash at any time the
// file holds data, or what it held before; once Write has returned nil, data.
func Write(name string, data []byte, mode fs.FileMode) error {
	temp := name + ".new"
	if err := Stage(temp, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := Rename(temp, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Stage writes a file that is not in use yet, and waits until the disk has its
// content; whether it has its name is for Rename.
func Stage(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Rename renames within a directory, and waits until the disk has the new name.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir waits until the disk has the names of a directory as they are.
func SyncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
