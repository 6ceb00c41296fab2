package image

import (
	"archive/tar"
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// opaqueAttribute is how overlayfs says that a directory hides that of lower layers.
const opaqueAttribute = "trusted.overlay.opaque"

func setOpaque(fd int) error { return unix.Fsetxattr(fd, opaqueAttribute, []byte("y"), 0) }

// whiteout removes what lower layers have. What the same layer has of that name stays,
// wherever in the tar it is.
func (u *unpacker) whiteout(parent, base string) error {
	if base != opaqueName && strings.HasPrefix(base, auxPrefix) {
		return nil
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if base != opaqueName && (name == "" || name == "." || name == "..") {
		return u.invalid(path.Join(parent, base), "it removes nothing that can be named")
	}
	dir, real, err := u.tree.dir(parent, true)
	if err != nil {
		return err
	}
	if base == opaqueName {
		if real == "." {
			u.opaque = true // overlayfs merges roots whatever they say
			return nil
		}
		return opaqueAt(dir, ".")
	}
	at := path.Join(real, name)
	if _, pending := u.links[at]; pending {
		return nil
	}
	st, err := stat(dir, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		u.white[at] = true
		return unix.Mknodat(dir, name, unix.S_IFCHR, 0)
	case err != nil:
		return err
	case isDir(st):
		if u.implicit[at] {
			u.fresh(at)
		}
		return opaqueAt(dir, name)
	}
	return nil
}

// opaqueAt makes a directory of dir opaque.
func opaqueAt(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setOpaque(fd)
}

// link makes a hard link, or notes it if its target is in a lower layer. The mode and
// owner of a hard link's header are those of its target, and are not looked at.
func (u *unpacker) link(h *tar.Header, parent, base string) error {
	target, err := u.clean(h.Linkname)
	if err != nil {
		return err
	}
	if target == "." {
		return u.invalid(h.Name, "a hard link to the root")
	}
	from, to := path.Split(target)
	source, found, err := u.target(path.Clean(from), to)
	if err != nil {
		return err
	}
	if source.dir >= 0 {
		defer unix.Close(source.dir)
	}
	dir, real, err := u.tree.dir(parent, true)
	if err != nil {
		return err
	}
	e := entry{dir: dir, base: base, at: path.Join(real, base)}
	if e.at == source.at {
		return nil
	}
	if further, pending := u.links[source.at]; pending && !found {
		source.at = further
	}
	if err := u.clear(e); err != nil {
		return err
	}
	if !found {
		if u.plain {
			return u.invalid(h.Name, "it is a hard link to %.200q, which is not there", h.Linkname)
		}
		u.links[e.at] = source.at
		return nil
	}
	err = unix.Linkat(source.dir, source.base, dir, base, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOENT) {
		return u.invalid(h.Name, "it is a hard link to %.200q, which is a directory or was replaced", h.Linkname)
	}
	return err
}

// target finds what a hard link is to. The directory of source is the caller's to
// close unless it is -1; without a directory, source.at is where lower layers have it.
func (u *unpacker) target(parent, base string) (source entry, found bool, err error) {
	source = entry{dir: -1, base: base, at: path.Join(parent, base)}
	dir, real, err := u.tree.dir(parent, false)
	if errors.Is(err, unix.ENOENT) {
		return source, false, nil
	}
	if err != nil {
		return source, false, err
	}
	source.at = path.Join(real, base)
	st, err := stat(dir, base)
	switch {
	case errors.Is(err, unix.ENOENT):
		return source, false, nil
	case err != nil:
		return source, false, err
	case isWhiteout(st) && !u.plain:
		return source, false, u.invalid(source.at, "a hard link to it, which the same layer removes")
	}
	source.dir, err = unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	return source, err == nil, err
}
