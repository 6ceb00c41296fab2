package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Target is where the content of an archive goes.
type Target struct {
	// Path is where: a directory that is there, in which it is called Name, or what is to be
	// made in one. Without a Name the content of a copied directory goes into Path itself.
	Path string
	Name string
	// Any says that the archive is not one of Pack, but made of another: its entries go into
	// Path, which is a directory that is there, in any order.
	Any bool
	// Mask are the permissions that nothing gets.
	Mask fs.FileMode
}

// unpacking is one call of Unpack.
type unpacking struct {
	Target
	r      *Reader
	root   *os.Root // of what the archive has below "."
	at     string   // the path of root, for messages
	dirs   []made   // those whose entries may still come, the innermost last
	temps  int
	buffer []byte
}

// made is a directory of the archive.
type made struct {
	name  string
	fresh bool // it was not there
	mode  fs.FileMode
	time  time.Time
}

// Unpack makes what the archive r says, at t. Files and directories belong to the caller,
// and have the modes and times that the archive says, but no set-user-ID, set-group-ID and
// sticky bits. A directory that was there stays as it is; a file replaces another one whole,
// when it is complete.
//
// What an archive of Pack cannot have is an error: what is in no directory that it has, or is
// no file, directory or symbolic link.
func Unpack(r io.Reader, t Target) error {
	u := &unpacking{Target: t, r: NewReader(r), buffer: make([]byte, small)}
	defer func() {
		if u.root != nil {
			_ = u.root.Close()
		}
	}()
	if t.Any {
		if err := u.into(t.Path); err != nil {
			return err
		}
	}
	for {
		e, err := u.r.Next()
		if errors.Is(err, io.EOF) {
			if !u.Any && !u.begun() {
				return errors.New("the archive is empty")
			}
			return u.leave("")
		}
		if err == nil {
			err = u.entry(e)
		}
		if err != nil {
			return err
		}
	}
}

// into makes dir where entries go.
func (u *unpacking) into(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	u.root, u.at = root, dir
	return nil
}

// entry makes one entry.
func (u *unpacking) entry(e *Entry) error {
	name := path.Clean(e.Name)
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("the archive names %.200q, which is not below the directory that it is unpacked in", e.Name)
	}
	if u.Any {
		return u.any(name, e)
	}
	if name == top {
		return u.begin(e)
	}
	// In the order of Pack, so that nothing is below a link, and no list of directories grows.
	if err := u.leave(path.Dir(name)); err != nil {
		return err
	}
	if len(u.dirs) == 0 {
		return fmt.Errorf("the archive has %.200q before the directory that it is in", e.Name)
	}
	switch e.Kind {
	case Directory:
		return u.directory(name, e)
	case File:
		return u.file(u.root, name, e)
	case Link:
		return u.link(name, e)
	}
	return u.unknown(e)
}

// any makes an entry of any archive: its directories need not be in it.
func (u *unpacking) any(name string, e *Entry) error {
	if name == top {
		return nil
	}
	if dir := path.Dir(name); dir != top {
		if err := u.root.MkdirAll(dir, 0o777&^u.Mask); err != nil {
			return u.failed(dir, err)
		}
	}
	switch e.Kind {
	case Directory:
		return u.directory(name, e)
	case Link:
		return u.link(name, e)
	case HardLink:
		return u.hardLink(name, e)
	case File:
		return u.file(u.root, name, e)
	}
	return u.unknown(e)
}

func (u *unpacking) unknown(e *Entry) error {
	return fmt.Errorf("the archive has %.200q of kind %q: want files, directories and links", e.Name, byte(e.Kind))
}

// begun reports whether what was copied itself is there.
func (u *unpacking) begun() bool { return u.root != nil || u.temps > 0 }

// begin makes what was copied itself.
func (u *unpacking) begin(e *Entry) error {
	if u.begun() {
		return errors.New("the archive begins twice")
	}
	at := u.Path
	info, err := os.Stat(at)
	isDir := err == nil && info.IsDir()
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case e.Kind == Directory && isDir && u.Name == "":
		u.dirs = append(u.dirs, made{name: top})
		return u.into(at)
	case isDir:
		at = filepath.Join(at, u.Name)
	case err == nil && (e.Kind == Directory || strings.HasSuffix(at, "/")):
		return &os.PathError{Op: "copy to", Path: at, Err: errors.New("it is no directory")}
	case e.Kind == File && strings.HasSuffix(at, "/"):
		return &os.PathError{Op: "copy to", Path: at, Err: errors.New("there is no such directory")}
	}
	above, err := os.OpenRoot(filepath.Dir(filepath.Clean(at)))
	if err != nil {
		return err
	}
	defer func() { _ = above.Close() }()
	u.at = above.Name()
	name := filepath.Base(at)
	switch e.Kind {
	case File:
		return u.file(above, name, e)
	case Directory:
		fresh, err := u.mkdir(above, name)
		if err != nil {
			return err
		}
		u.at = filepath.Join(u.at, name)
		u.dirs = append(u.dirs, made{top, fresh, u.mode(e), e.Time})
		u.root, err = above.OpenRoot(name)
		return err
	}
	return u.unknown(e)
}

func (u *unpacking) mode(e *Entry) fs.FileMode {
	return e.Mode & fs.ModePerm &^ u.Mask
}

// failed returns an error with the whole path of name.
func (u *unpacking) failed(name string, err error) error {
	op := "write"
	if p, ok := errors.AsType[*os.PathError](err); ok {
		op, err = p.Op, p.Err
	} else if l, ok := errors.AsType[*os.LinkError](err); ok {
		op, err = l.Op, l.Err
	}
	return &os.PathError{Op: strings.TrimSuffix(op, "at"), Path: shown(filepath.Join(u.at, name)), Err: err}
}

// shown returns a name for people: it comes from others, and may have anything in it.
func shown(name string) string {
	if q := strconv.Quote(name); q != `"`+name+`"` {
		return q
	}
	return name
}

// mkdir makes a directory, if it is not there. A link to one is none.
func (u *unpacking) mkdir(root *os.Root, name string) (fresh bool, err error) {
	err = root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		info, err := root.Lstat(name)
		if err == nil && !info.IsDir() {
			err = errors.New("it is there, and no directory")
		}
		if err != nil {
			return false, u.failed(name, err)
		}
		return false, nil
	}
	if err != nil {
		return false, u.failed(name, err)
	}
	return true, nil
}

func (u *unpacking) directory(name string, e *Entry) error {
	fresh, err := u.mkdir(u.root, name)
	u.dirs = append(u.dirs, made{name, fresh, u.mode(e), e.Time})
	return err
}

// leave gives the directories that dir is not in their modes and times: all that comes is in
// dir. Of other archives only the end says that.
func (u *unpacking) leave(dir string) error {
	for len(u.dirs) > 0 && (dir == "" || !u.Any && u.dirs[len(u.dirs)-1].name != dir) {
		d := u.dirs[len(u.dirs)-1]
		u.dirs = u.dirs[:len(u.dirs)-1]
		if !d.fresh {
			continue
		}
		if err := u.finish(d); err != nil {
			return u.failed(d.name, err)
		}
	}
	return nil
}

func (u *unpacking) finish(d made) error {
	f, err := u.root.Open(d.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(d.mode); err != nil {
		return err
	}
	return u.root.Chtimes(d.name, time.Time{}, d.time)
}

// file makes a file beside its place, and puts it there when it is complete.
func (u *unpacking) file(root *os.Root, name string, e *Entry) error {
	if info, err := root.Lstat(name); err == nil && info.IsDir() {
		return u.failed(name, errors.New("it is there, and a directory"))
	}
	f, temp, err := u.temp(root, path.Dir(name))
	if err != nil {
		return u.failed(name, err)
	}
	// A struct without more than Write: the file's own ReadFrom would take another way.
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{u.r}, u.buffer)
	if err == nil {
		err = f.Chmod(u.mode(e))
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Chtimes(temp, time.Time{}, e.Time)
	}
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		_ = root.Remove(temp)
		return u.failed(name, err)
	}
	return nil
}

// tries is how many names are tried for a file that is not complete.
const tries = 100

func (u *unpacking) temp(root *os.Root, dir string) (f *os.File, name string, err error) {
	for range tries {
		u.temps++
		name = path.Join(dir, fmt.Sprintf(".muster-cp-%d-%d", os.Getpid(), u.temps))
		f, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return f, name, err
}

// link makes a symbolic link, which nothing here follows.
func (u *unpacking) link(name string, e *Entry) error {
	err := u.clear(name)
	if err == nil {
		err = u.root.Symlink(e.Link, name)
	}
	if err != nil {
		return u.failed(name, err)
	}
	return nil
}

// hardLink makes another name of an entry.
func (u *unpacking) hardLink(name string, e *Entry) error {
	to := path.Clean(e.Link)
	err := u.clear(name)
	if err == nil {
		err = u.root.Link(to, name)
	}
	if err != nil {
		return u.failed(name, err)
	}
	return nil
}

// clear removes a file or a link that is in the way.
func (u *unpacking) clear(name string) error {
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is there, and a directory")
	}
	return u.root.Remove(name)
}
