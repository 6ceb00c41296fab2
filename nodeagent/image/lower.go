package image

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// merged looks into layers as overlayfs would show them: roots are open directories
// from the top down.
type merged struct{ roots []int }

// found is an entry of merged layers. All is nothing if no layer has it.
type found struct {
	dirs []int // if it is a directory: the directories that are merged there, from the top down
	st   unix.Stat_t
	dir  int // of the parent in the topmost layer that has it
}

// stack opens and closes the directories of one lookup.
type stack struct{ open []int }

func (s *stack) close() {
	for _, fd := range s.open {
		_ = unix.Close(fd)
	}
}

// lookup finds a path. Links on the way are followed, the last element is not; the
// error is ENOENT if it is not there. What is found is open until s is closed.
func (m merged) lookup(s *stack, name string) (found, error) {
	left := strings.Split(name, "/")
	at := []found{{dirs: m.roots}}
	for links := 0; len(left) > 0; {
		elem := left[0]
		left = left[1:]
		switch elem {
		case "", ".":
			continue
		case "..":
			if len(at) > 1 {
				at = at[:len(at)-1]
			}
			continue
		}
		f, err := enter(s, at[len(at)-1].dirs, elem)
		if err != nil {
			return found{}, err
		}
		if len(left) == 0 || f.dirs != nil {
			at = append(at, f)
			continue
		}
		if links++; links > mostLinks {
			return found{}, unix.ELOOP
		}
		target, err := readLink(f.dir, elem)
		if err != nil {
			return found{}, err
		}
		if strings.HasPrefix(target, "/") {
			at = at[:1]
		}
		left = append(strings.Split(target, "/"), left...)
	}
	return at[len(at)-1], nil
}

// enter finds an entry of merged directories.
func enter(s *stack, dirs []int, name string) (found, error) {
	f := found{dir: -1}
	for _, dir := range dirs {
		st, err := stat(dir, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return f, err
		}
		if isWhiteout(st) {
			break
		}
		first := f.dir < 0
		if first {
			f.st, f.dir = st, dir
		}
		if !isDir(st) {
			break
		}
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return f, err
		}
		s.open = append(s.open, fd)
		f.dirs = append(f.dirs, fd)
		if n, err := unix.Fgetxattr(fd, opaqueAttribute, make([]byte, 1)); err == nil && n == 1 {
			break
		}
	}
	if f.dir < 0 {
		return f, unix.ENOENT
	}
	return f, nil
}

// needs reports whether the layer depends on those below it.
func (u *unpacker) needs() bool {
	return len(u.implicit) > 0 || len(u.links) > 0 || len(u.white) > 0
}

// over returns what u unpacks over lower layers, whose directories are given from the top down,
// without those that a layer hides with all of its root.
func (u *unpacker) over(lower []string) (merged, error) {
	m := merged{roots: []int{u.tree.root}}
	for _, dir := range lower {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			m.close()
			return m, disk(u.of, err)
		}
		m.roots = append(m.roots, fd)
	}
	return m, nil
}

// close closes all roots but the first, which is an unpacker's.
func (m merged) close() {
	for _, fd := range m.roots[1:] {
		_ = unix.Close(fd)
	}
}

// link returns the target of a symbolic link; "" if there is something else, or nothing.
func (m merged) link(name string) (string, error) {
	var s stack
	defer s.close()
	f, err := m.lookup(&s, name)
	if errors.Is(err, unix.ENOENT) || err == nil && !isLink(f.st) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return readLink(f.dir, path.Base(name))
}

// follow has u follow the symbolic links of the lower layers, which are given as to resolve. It
// returns what ends that.
func (u *unpacker) follow(lower []string) (func(), error) {
	m, err := u.over(lower)
	if err != nil {
		return nil, err
	}
	u.follows, u.tree.below = true, m.link
	return func() {
		u.tree.below = nil
		m.close()
	}, nil
}

// errFollow is that of a layer with something below a symbolic link of lower layers: where it
// belongs is known only while those are.
var errFollow = errors.New("it is below a symbolic link of a lower layer")

// resolve makes what depends on the lower layers, which are given as to over. The error is
// errFollow for what has to be unpacked again, with follow.
func (u *unpacker) resolve(lower []string) error {
	if u.opaque {
		lower = nil
	}
	m, err := u.over(lower)
	if err != nil {
		return err
	}
	defer m.close()
	if !u.follows {
		for p := range u.implicit {
			if linked, err := m.linked(p); linked || err != nil {
				return cmp.Or(err, errFollow)
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(u.links)) {
		if err := u.linkLower(m, p); err != nil {
			return u.explain(p, err)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(u.white)) {
		if err := u.unneeded(m, p); err != nil {
			return u.explain(p, err)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(u.implicit)) {
		if err := u.inherit(m, p); err != nil {
			return u.explain(p, err)
		}
	}
	return nil
}

// linked reports whether a directory of the topmost layer hides a symbolic link of the others.
func (m merged) linked(at string) (bool, error) {
	var s stack
	defer s.close()
	parent, base := path.Split(at)
	f, err := m.lookup(&s, path.Clean(parent))
	if err != nil || len(f.dirs) < 2 {
		return false, err
	}
	f, err = enter(&s, f.dirs[1:], base)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && isLink(f.st), err
}

// linkLower makes a hard link to a file of a lower layer. They stay one file, which
// nothing writes to: overlayfs copies it before it is changed.
func (u *unpacker) linkLower(m merged, at string) error {
	target := u.links[at]
	var s stack
	defer s.close()
	f, err := m.lookup(&s, target)
	if errors.Is(err, unix.ENOENT) || err == nil && isDir(f.st) {
		return u.invalid(at, "it is a hard link to %.200q, which is no file of this layer or of those below", target)
	}
	if err != nil {
		return err
	}
	parent, base := path.Split(at)
	dir, _, err := u.tree.dir(path.Clean(parent), false)
	if err != nil {
		return err
	}
	return unix.Linkat(f.dir, path.Base(target), dir, base, 0)
}

// unneeded removes a whiteout of what no lower layer has: where overlayfs merges no
// directories, it would list the name.
func (u *unpacker) unneeded(m merged, at string) error {
	var s stack
	defer s.close()
	parent, base := path.Split(at)
	f, err := m.lookup(&s, path.Clean(parent))
	if err != nil {
		return err
	}
	if len(f.dirs) == 0 {
		return errNotDirectory
	}
	if _, err = enter(&s, f.dirs[1:], base); errors.Is(err, unix.ENOENT) {
		err = unix.Unlinkat(f.dirs[0], base, 0)
	}
	return err
}

// inherit gives a directory that exists since something is below it the attributes
// that the lower layers say.
func (u *unpacker) inherit(m merged, at string) error {
	var s stack
	defer s.close()
	f, err := m.lookup(&s, at)
	if err != nil {
		return err
	}
	if len(f.dirs) == 0 {
		return errNotDirectory
	}
	u.times[at] = unix.Timespec{}
	if len(f.dirs) == 1 {
		return nil // as it was made
	}
	var st unix.Stat_t
	if err := unix.Fstat(f.dirs[1], &st); err != nil {
		return err
	}
	u.times[at] = st.Mtim
	if err := unix.Fchown(f.dirs[0], int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(f.dirs[0], st.Mode&0o7777); err != nil {
		return err
	}
	return copyXattrs(f.dirs[1], f.dirs[0])
}

// copyXattrs copies the extended attributes of a directory that a layer may have.
func copyXattrs(from, to int) error {
	names := make([]byte, 64<<10) // the most that there are
	n, err := unix.Flistxattr(from, names)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		if !portable(name) {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(from, name, value)
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:n], 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
