package repofiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// File is the content and the permissions of a file, of which the umask is
// taken away.
type File struct {
	Data []byte
	Mode fs.FileMode
}

// stageName is the directory in which Add gets ready what it then moves into an
// existing directory. A run that was killed leaves it behind; the next removes
// it.
const stageName = ".muster-init"

// InTheWay returns which files Add could not write into dir, sorted: what is
// there already, or stands where a directory has to be. A file that is there
// with the same content is not in the way, so that what was begun can be
// finished. Paths have slashes. It errs when dir cannot be looked into, or is no
// directory.
func InTheWay(dir string, files map[string]File) ([]string, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	found := map[string]bool{}
	for name, f := range files {
		at, err := obstacle(dir, name, f)
		if err != nil {
			return nil, err
		}
		if at != "" {
			found[at] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// obstacle returns the path of what is in the way of one file, "" if nothing.
func obstacle(dir, name string, f File) (string, error) {
	parts := strings.Split(name, "/")
	for i := range parts {
		at := path.Join(parts[:i+1]...)
		info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(at)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", nil
		case err != nil:
			return "", err
		case i < len(parts)-1 && info.IsDir():
		case i == len(parts)-1 && info.Mode().IsRegular():
			have, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(at)))
			if err != nil || bytes.Equal(have, f.Data) {
				return "", err
			}
			return at, nil
		default:
			return at, nil
		}
	}
	return "", nil
}

// undo is what to do, last first, when something fails.
type undo []func() error

func (u *undo) add(f func() error) { *u = append(*u, f) }

// Add writes files into dir, which is made if it is missing, and then calls
// finish, if that is not nil, with the directory that has them. When anything
// fails, what was written is taken away again. A file that is there with the
// same content is left alone; any other, even one that appears meanwhile, makes
// Add fail.
func Add(dir string, files map[string]File, finish func(dir string) error) error {
	if finish == nil {
		finish = func(string) error { return nil }
	}
	var u undo
	_, err := os.Stat(dir)
	switch {
	case err == nil:
		err = u.addInto(dir, files, finish)
	case errors.Is(err, fs.ErrNotExist):
		err = u.addWhole(dir, files, finish)
	}
	if err != nil {
		return errors.Join(err, u.run())
	}
	return nil
}

// addWhole makes the directory under another name and renames it.
func (u *undo) addWhole(dir string, files map[string]File, finish func(string) error) error {
	dir = filepath.Clean(dir)
	if err := u.mkdirAll(filepath.Dir(dir)); err != nil {
		return err
	}
	stage := filepath.Join(filepath.Dir(dir), fmt.Sprintf(".%s.%d.new", filepath.Base(dir), os.Getpid()))
	u.add(func() error { return os.RemoveAll(stage) })
	if err := write(stage, files); err != nil {
		return err
	}
	if err := finish(stage); err != nil {
		return err
	}
	return os.Rename(stage, dir)
}

// addInto writes the files beside and moves each to its place.
func (u *undo) addInto(dir string, files map[string]File, finish func(string) error) (err error) {
	stage := filepath.Join(dir, stageName)
	// Whether or not it is needed any more.
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	if err := write(stage, files); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := u.mkdirAll(filepath.Dir(to)); err != nil {
			return err
		}
		if err := u.move(filepath.Join(stage, filepath.FromSlash(name)), to); err != nil {
			return err
		}
	}
	return finish(dir)
}

// write writes files below a new directory.
func write(dir string, files map[string]File) error {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // a source tree
		return err
	}
	for name, f := range files {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // a source tree
			return err
		}
		if err := os.WriteFile(to, f.Data, f.Mode); err != nil {
			return err
		}
	}
	return nil
}

// run undoes all, as far as it can.
func (u *undo) run() error {
	var errs []error
	for _, f := range slices.Backward(*u) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// mkdirAll is os.MkdirAll that can be undone.
func (u *undo) mkdirAll(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := u.mkdirAll(filepath.Dir(dir)); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755) //nolint:gosec // a source tree
	if err == nil {
		u.add(func() error { return os.Remove(dir) })
	}
	return err
}

// move moves a file to where nothing is, or leaves what is the same.
func (u *undo) move(from, to string) error {
	err := os.Link(from, to) // a rename would take the place of what is there
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		// A file system without hard links, as those that machines share with
		// their virtual ones.
		if _, err = os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(from, to)
		} else if err == nil {
			err = fs.ErrExist
		}
	}
	if errors.Is(err, fs.ErrExist) {
		same, err := equal(from, to)
		if err == nil && !same {
			err = fmt.Errorf("%s has appeared: %w", to, fs.ErrExist)
		}
		return err
	}
	if err == nil {
		u.add(func() error { return os.Remove(to) })
	}
	return err
}

func equal(a, b string) (bool, error) {
	info, err := os.Lstat(b)
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	one, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	two, err := os.ReadFile(b)
	return bytes.Equal(one, two), err
}

// Replace writes files into dir, over what is there; nil removes one. Each
// appears at once and keeps the permissions that it had. All are written or none:
// all are got ready beside their places first, and when one cannot take its place,
// those before it get back what they had. A file of which was has the content must
// still have it, or nothing is written: an error that is ErrChanged. Replace refuses
// to write through a symbolic link. Its errors name the file.
func Replace(dir string, files, was map[string][]byte) error {
	return replaceAll(dir, files, was, os.Rename)
}

// ErrChanged is what a file is that has another content than when it was read.
var ErrChanged = errors.New("it has changed since it was read")

// replaceAll is Replace with what puts a file into its place.
func replaceAll(dir string, files, was map[string][]byte, rename func(from, to string) error) error {
	var dirs, back undo // what is undone on failure
	var beside undo     // what is removed in any case
	err := func() error {
		names := slices.Sorted(maps.Keys(files))
		for _, name := range names {
			if err := stage(&dirs, &beside, filepath.Join(dir, filepath.FromSlash(name)), files[name]); err != nil {
				return fmt.Errorf("%s cannot be written: %w", name, err)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(was)) {
			if now, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
				return fmt.Errorf("%s: %w: %w", name, ErrChanged, err)
			} else if !bytes.Equal(now, was[name]) {
				return fmt.Errorf("%s: %w", name, ErrChanged)
			}
		}
		for _, name := range names {
			if err := swap(&back, filepath.Join(dir, filepath.FromSlash(name)), files[name] == nil, rename); err != nil {
				return fmt.Errorf("%s cannot be written: %w", name, err)
			}
		}
		return nil
	}()
	if err == nil {
		return beside.run()
	}
	return errors.Join(err, back.run(), beside.run(), dirs.run())
}

// The names of what Replace gets ready beside a file, and of what it may have to put back.
const (
	newSuffix = ".muster-new"
	oldSuffix = ".muster-old"
)

// stage gets ready what is to be in the place of a file, and what was, beside it.
func stage(dirs, beside *undo, to string, data []byte) error {
	mode := fs.FileMode(0o644)
	info, err := os.Lstat(to)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case err == nil:
		mode = info.Mode().Perm()
		if err := keep(beside, to, to+oldSuffix, mode); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if data == nil {
		return nil
	}
	if err := dirs.mkdirAll(filepath.Dir(to)); err != nil {
		return err
	}
	if err := vacate(beside, to+newSuffix); err != nil {
		return err
	}
	return os.WriteFile(to+newSuffix, data, mode)
}

// keep makes a file available under another name too.
func keep(beside *undo, from, to string, mode fs.FileMode) error {
	if err := vacate(beside, to); err != nil {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from) // a file system without hard links, or a file of somebody else
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}

// vacate removes what a run that was killed has left at a path, and notes that it is to be
// removed again.
func vacate(beside *undo, at string) error {
	gone := func() error {
		if err := os.Remove(at); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := gone(); err != nil {
		return err
	}
	beside.add(gone)
	return nil
}

// swap puts what was got ready for a file into its place.
func swap(back *undo, to string, remove bool, rename func(from, to string) error) error {
	_, err := os.Lstat(to + oldSuffix)
	was := err == nil
	switch {
	case !remove:
		err = rename(to+newSuffix, to)
	case was:
		err = os.Remove(to)
	default:
		return nil // it was not there
	}
	if err != nil {
		return err
	}
	back.add(func() error {
		if was {
			return os.Rename(to+oldSuffix, to)
		}
		return os.Remove(to)
	})
	return nil
}
