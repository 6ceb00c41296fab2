package image

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of one path in a layer: no Linux program can name more.
const (
	longestPath    = 4096 // bytes
	longestElement = 255  // bytes
	deepestPath    = 256  // directories
	mostLinks      = 40   // symbolic links that lead to one directory, as in Linux
)

// tree is a directory that is being filled. Every path is resolved below it by
// opening one directory after the other without following links; the targets of
// symbolic links are resolved by tree itself, with its own root as /. So nothing
// outside of it can be reached, whatever is in it and whoever changes it.
//
// A tree is for one goroutine.
type tree struct {
	root int
	// missing is called with the path of each directory that is made since an
	// entry below it needs it. It is made with mode 0755.
	missing func(path string) error
	// below, if set, returns the target of the symbolic link that lower layers have where the
	// tree has nothing, and "" if that is none.
	below func(path string) (string, error)
	// covered, if set, is called with the path of each such directory that takes the
	// place of a whiteout, and is opaque.
	covered func(path string)

	last     string // the directory opened last, as it was asked for
	lastReal string // its path without links
	lastFD   int    // -1: none
}

func openTree(dir string) (*tree, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &tree{root: fd, lastFD: -1}, nil
}

func (t *tree) close() {
	t.forget()
	_ = unix.Close(t.root)
}

// forget closes the directory that is kept open.
func (t *tree) forget() {
	if t.lastFD >= 0 {
		_ = unix.Close(t.lastFD)
	}
	t.lastFD, t.last = -1, ""
}

// errNotDirectory is returned for a path below something else.
var errNotDirectory = errors.New("is below something that is no directory")

// dir opens a directory of the tree: fd is good until the next call of a method of
// t, and real is its path without links. With make it makes what is missing; else
// the error of a missing directory is ENOENT.
func (t *tree) dir(name string, create bool) (fd int, real string, err error) {
	if name == "." {
		return t.root, ".", nil
	}
	if t.last == name {
		return t.lastFD, t.lastReal, nil
	}
	w := walk{tree: t, create: create, real: "."}
	defer w.close()
	fd, err = w.to(name)
	if err != nil {
		return -1, "", err
	}
	if w.real == "." {
		return t.root, ".", nil
	}
	t.forget()
	t.last, t.lastReal, t.lastFD = name, w.real, fd
	w.fds = w.fds[:len(w.fds)-1]
	return fd, w.real, nil
}

// walk goes down a tree: fds are the directories from the root, without it.
type walk struct {
	tree   *tree
	create bool
	fds    []int
	real   string
	links  int
}

func (w *walk) close() {
	for _, fd := range w.fds {
		_ = unix.Close(fd)
	}
	w.fds = nil
}

func (w *walk) here() int {
	if len(w.fds) == 0 {
		return w.tree.root
	}
	return w.fds[len(w.fds)-1]
}

// up goes to the parent; that of the root is the root.
func (w *walk) up() {
	if n := len(w.fds); n > 0 {
		_ = unix.Close(w.fds[n-1])
		w.fds = w.fds[:n-1]
		w.real = path.Dir(w.real)
	}
}

// to goes from where it is to a path.
func (w *walk) to(name string) (int, error) {
	left := strings.Split(name, "/")
	for len(left) > 0 {
		elem := left[0]
		left = left[1:]
		switch elem {
		case "", ".":
			continue
		case "..":
			w.up()
			continue
		}
		if len(w.fds) >= deepestPath {
			return -1, unix.ENAMETOOLONG
		}
		target, err := w.step(elem)
		if err != nil {
			return -1, err
		}
		if target == "" {
			continue
		}
		if w.links++; w.links > mostLinks {
			return -1, unix.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			w.close()
			w.real = "."
		}
		left = append(strings.Split(target, "/"), left...)
	}
	return w.here(), nil
}

// step goes into an entry of the directory, or returns the target if it is a link.
func (w *walk) step(elem string) (link string, err error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(w.here(), elem, flags, 0)
	if errors.Is(err, unix.ENOENT) && w.tree.below != nil {
		if link, err := w.tree.below(path.Join(w.real, elem)); link != "" || err != nil {
			return link, err
		}
	}
	if errors.Is(err, unix.ENOENT) && w.create {
		if err := w.mkdir(elem); err != nil {
			return "", err
		}
		fd, err = unix.Openat(w.here(), elem, flags, 0)
	}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		link, err = readLink(w.here(), elem)
		if !errors.Is(err, errNotDirectory) || !w.create || w.tree.covered == nil {
			return link, err
		}
		if err := w.cover(elem); err != nil {
			return "", err
		}
		fd, err = unix.Openat(w.here(), elem, flags, 0)
	}
	if err != nil {
		return "", err
	}
	w.fds = append(w.fds, fd)
	w.real = path.Join(w.real, elem)
	return "", nil
}

// mkdir makes a directory that is missing.
func (w *walk) mkdir(elem string) error {
	err := unix.Mkdirat(w.here(), elem, 0o755)
	if err == nil {
		err = unix.Fchmodat(w.here(), elem, 0o755, 0) // whatever the umask
	}
	if err == nil && w.tree.missing != nil {
		err = w.tree.missing(path.Join(w.real, elem))
	}
	return err
}

// cover makes a directory in the place of a whiteout.
func (w *walk) cover(elem string) error {
	st, err := stat(w.here(), elem)
	if err != nil {
		return err
	}
	if !isWhiteout(st) {
		return errNotDirectory
	}
	if err := unix.Unlinkat(w.here(), elem, 0); err != nil {
		return err
	}
	if err := w.mkdir(elem); err != nil {
		return err
	}
	w.tree.covered(path.Join(w.real, elem))
	return opaqueAt(w.here(), elem)
}

// readLink returns the target of a symbolic link, and errNotDirectory for all else.
func readLink(dir int, name string) (string, error) {
	b := make([]byte, longestPath+1)
	n, err := unix.Readlinkat(dir, name, b)
	switch {
	case errors.Is(err, unix.EINVAL):
		return "", errNotDirectory
	case err != nil:
		return "", err
	case n == 0 || n > longestPath:
		return "", unix.ENAMETOOLONG
	}
	return string(b[:n]), nil
}

// remove removes what is at name in the directory dir, with all below it; it is no
// error if there is nothing. gone is called with the path of each entry below it,
// and of itself, given at, its own path.
func (t *tree) remove(dir int, name, at string, gone func(path string)) error {
	t.last = "" // the way to what is open may be what is removed; dir may be what is open
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		if err = t.empty(dir, name, at, gone); err == nil {
			err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
	}
	if err == nil {
		gone(at)
	}
	return err
}

// empty removes all that is in a directory of dir.
func (t *tree) empty(dir int, name, at string, gone func(path string)) error {
	names, err := list(dir, name)
	if err != nil {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, n := range names {
		if err := t.remove(fd, n, path.Join(at, n), gone); err != nil {
			return err
		}
	}
	return nil
}

// stat is the status of a directory's entry; err is ENOENT if there is none.
func stat(dir int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// isWhiteout reports whether st is what overlayfs takes for a whiteout.
func isWhiteout(st unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func isLink(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

func isDir(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// list returns the names in a directory of dir.
func list(dir int, name string) ([]string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return f.Readdirnames(-1)
}
