package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of the entries by which a layer removes what lower layers have.
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	auxPrefix      = ".wh..wh." // of AUFS, which made layers once
)

// attributes are what a directory has besides its entries.
type attributes struct {
	Mode uint32 `json:"mode"` // permissions with setuid, setgid and sticky
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
}

// plainDir are the attributes of a directory of which no layer says anything.
var plainDir = attributes{Mode: 0o755}

// unpacker turns the entries of one tar into a directory that overlayfs takes as a
// layer. It is for one goroutine.
type unpacker struct {
	tree   *tree
	of     string // what is unpacked, for errors
	budget *budget
	plain  bool // the names of whiteouts are names like others
	buf    []byte

	entries int64
	bytes   int64
	top     *attributes // of the root, if the tar says them
	opaque  bool        // the root hides all lower layers
	follows bool        // the symbolic links of lower layers
	// What the lower layers decide: directories that exist since something is
	// below them, hard links to what this layer does not have, and whiteouts.
	implicit map[string]bool
	white    map[string]bool
	links    map[string]string
	times    map[string]unix.Timespec // of directories, set at the end
}

func newUnpacker(of string, b *budget) *unpacker {
	return &unpacker{
		of: of, budget: b, buf: make([]byte, 256<<10),
		implicit: map[string]bool{}, white: map[string]bool{}, links: map[string]string{}, times: map[string]unix.Timespec{},
	}
}

// on sets where u unpacks.
func (u *unpacker) on(t *tree) {
	u.tree = t
	t.missing = func(p string) error {
		delete(u.links, p)
		u.implicit[p] = true
		return u.take(block)
	}
	if !u.plain {
		t.covered = u.fresh
	}
}

// fresh notes that a directory without an entry has nothing of lower layers.
func (u *unpacker) fresh(p string) {
	delete(u.white, p)
	delete(u.implicit, p)
	u.times[p] = unix.Timespec{}
}

// take notes an entry that takes n bytes.
func (u *unpacker) take(n int64) error {
	u.entries++
	u.bytes += n
	return u.budget.take(n)
}

func (u *unpacker) invalid(name, format string, args ...any) error {
	return fail(ErrInvalid, u.of, "entry %.200q: %w", name, fmt.Errorf(format, args...))
}

// unpack reads the tar r to its end.
func (u *unpacker) unpack(ctx context.Context, r io.Reader) error {
	source := &source{r: r}
	tr := tar.NewReader(source)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return u.broken(source, err)
		}
		if err := u.entry(h, tr); err != nil {
			if source.err != nil {
				return source.err
			}
			return u.explain(h.Name, err)
		}
	}
	// What follows the end is part of what has the digest, and of the size.
	for {
		n, err := source.Read(u.buf)
		u.bytes += int64(n)
		if failed := u.budget.grow(int64(n)); failed != nil {
			return failed
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// source keeps the error of what a tar is read from, so that it is not taken for one
// of the tar itself.
type source struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func (u *unpacker) broken(s *source, err error) error {
	if s.err != nil {
		return s.err
	}
	return fail(ErrInvalid, u.of, "it is no tar archive: %w", err)
}

// explain returns what an error of the file system means for an entry.
func (u *unpacker) explain(name string, err error) error {
	var f *failure
	if errors.As(err, &f) {
		return err
	}
	for _, e := range []error{errNotDirectory, unix.ENAMETOOLONG, unix.ELOOP, unix.EMLINK, unix.ENOTDIR, io.ErrUnexpectedEOF} {
		if errors.Is(err, e) {
			return u.invalid(name, "%w", err)
		}
	}
	return disk(fmt.Sprintf("%s: entry %.200q", u.of, name), err)
}

// clean returns the path of an entry below the root.
func (u *unpacker) clean(name string) (string, error) {
	if len(name) > longestPath {
		return "", u.invalid(name, "its name has %d bytes, at most %d can be named", len(name), longestPath)
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", u.invalid(name, "its name has a zero byte")
	}
	depth := 0
	for elem := range strings.SplitSeq(name, "/") {
		switch {
		case elem == "..":
			return "", u.invalid(name, "its name leads upwards (..)")
		case len(elem) > longestElement:
			return "", u.invalid(name, "an element of its name has %d bytes, at most %d are possible", len(elem), longestElement)
		case elem != "" && elem != ".":
			depth++
		}
	}
	if depth > deepestPath {
		return "", u.invalid(name, "it is %d directories deep, at most %d are taken", depth, deepestPath)
	}
	if name = strings.TrimLeft(path.Clean("/"+name), "/"); name == "" {
		name = "."
	}
	return name, nil
}

// entry makes what one header says.
func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := u.clean(h.Name)
	if err != nil {
		return err
	}
	if err := u.check(h); err != nil {
		return err
	}
	size := int64(block)
	if h.Typeflag == tar.TypeReg {
		size = rounded(h.Size)
	}
	if err := u.take(size); err != nil {
		return err
	}
	if name == "." {
		return u.rootEntry(h)
	}
	parent, base := path.Split(name)
	if strings.HasPrefix(base, whiteoutPrefix) && !u.plain {
		return u.whiteout(path.Clean(parent), base)
	}
	if h.Typeflag == tar.TypeLink {
		return u.link(h, path.Clean(parent), base)
	}
	dir, real, err := u.tree.dir(path.Clean(parent), true)
	if err != nil {
		return err
	}
	e := entry{dir: dir, base: base, at: path.Join(real, base)}
	if h.Typeflag == tar.TypeDir {
		return u.directory(h, e)
	}
	if err := u.clear(e); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(h, e, content)
	case tar.TypeSymlink:
		err = unix.Symlinkat(h.Linkname, dir, base)
	case tar.TypeChar:
		err = unix.Mknodat(dir, base, unix.S_IFCHR|0o600, int(device(h)))
	case tar.TypeBlock:
		err = unix.Mknodat(dir, base, unix.S_IFBLK|0o600, int(device(h)))
	case tar.TypeFifo:
		err = unix.Mknodat(dir, base, unix.S_IFIFO|0o600, 0)
	}
	if err != nil {
		return err
	}
	return u.finish(h, e)
}

// check refuses headers that mean nothing, or something else to overlayfs.
func (u *unpacker) check(h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeFifo, tar.TypeBlock:
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) >= longestPath {
			return u.invalid(h.Name, "its target has %d bytes, 1 to %d are possible", len(h.Linkname), longestPath-1)
		}
	case tar.TypeLink:
	case tar.TypeChar:
		if h.Devmajor == 0 && h.Devminor == 0 && !u.plain {
			return u.invalid(h.Name, "it is the device 0:0, which overlayfs takes for a removed file")
		}
	default:
		return u.invalid(h.Name, "its type %q is unknown", h.Typeflag)
	}
	const most = math.MaxUint32 - 1 // the last one means "no change" to the kernel
	if h.Uid < 0 || h.Uid > most || h.Gid < 0 || h.Gid > most {
		return u.invalid(h.Name, "its owner %d:%d is no user and group", h.Uid, h.Gid)
	}
	if h.Devmajor < 0 || h.Devmajor >= 1<<12 || h.Devminor < 0 || h.Devminor >= 1<<20 {
		return u.invalid(h.Name, "there is no device %d:%d", h.Devmajor, h.Devminor)
	}
	return nil
}

func device(h *tar.Header) uint64 { return unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)) }

// entry is where something is made.
type entry struct {
	dir  int // of its parent
	base string
	at   string // its path, without links
}

// clear makes room for another entry: later ones replace earlier ones.
func (u *unpacker) clear(e entry) error {
	delete(u.links, e.at)
	return u.tree.remove(e.dir, e.base, e.at, func(p string) {
		delete(u.implicit, p)
		delete(u.white, p)
		delete(u.times, p)
		for l := range u.links {
			if strings.HasPrefix(l, p+"/") {
				delete(u.links, l)
			}
		}
	})
}

// rootEntry takes the attributes of the root.
func (u *unpacker) rootEntry(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return u.invalid(h.Name, "the root can only be a directory")
	}
	u.top = &attributes{Mode: uint32(h.Mode) & 0o7777, UID: uint32(h.Uid), GID: uint32(h.Gid)}
	u.times["."] = timeOf(h)
	fd, err := unix.Openat(u.tree.root, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return u.attribute(h, fd)
}

func (u *unpacker) directory(h *tar.Header, e entry) error {
	st, err := stat(e.dir, e.base)
	exists := err == nil
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	_, pending := u.links[e.at]
	replaced := exists && !isDir(st) || pending
	if replaced {
		// What was here, even if only its removal, had replaced what lower layers have.
		exists = false
		if err := u.clear(e); err != nil {
			return err
		}
	}
	if !exists {
		if err := unix.Mkdirat(e.dir, e.base, 0o700); err != nil {
			return err
		}
	}
	delete(u.implicit, e.at)
	fd, err := unix.Openat(e.dir, e.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if replaced && !u.plain {
		if err := setOpaque(fd); err != nil {
			return err
		}
	}
	u.times[e.at] = timeOf(h)
	return u.attribute(h, fd)
}

func (u *unpacker) file(h *tar.Header, e entry, content io.Reader) error {
	fd, err := unix.Openat(e.dir, e.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = u.fill(fd, content)
	if err == nil {
		err = u.attribute(h, fd)
	}
	if err == nil {
		ts := timeOf(h)
		err = unix.UtimesNanoAt(e.dir, e.base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	}
	return errors.Join(err, unix.Close(fd))
}

// fill writes content to a file.
func (u *unpacker) fill(fd int, content io.Reader) error {
	for {
		n, err := io.ReadFull(content, u.buf)
		for b := u.buf[:n]; len(b) > 0; {
			done, failed := unix.Write(fd, b)
			if errors.Is(failed, unix.EINTR) {
				continue
			}
			if failed != nil {
				return failed
			}
			b = b[done:]
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF): // of ReadFull, or of a tar that is cut short
			if _, err := content.Read(u.buf[:1]); errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case err != nil:
			return err
		}
	}
}

// attribute sets owner, mode and extended attributes of an open file or directory,
// in this order: a change of the owner takes away setuid and capabilities.
func (u *unpacker) attribute(h *tar.Header, fd int) error {
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, uint32(h.Mode)&0o7777); err != nil {
		return err
	}
	return u.xattrs(h, func(name string, value []byte) error { return unix.Fsetxattr(fd, name, value, 0) })
}

// finish sets the same of what cannot be opened without an effect.
func (u *unpacker) finish(h *tar.Header, e entry) error {
	if err := unix.Fchownat(e.dir, e.base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		// It was made by this process just now, so it is no link.
		if err := unix.Fchmodat(e.dir, e.base, uint32(h.Mode)&0o7777, 0); err != nil {
			return err
		}
	}
	where := fmt.Sprintf("/proc/self/fd/%d/%s", e.dir, e.base)
	if err := u.xattrs(h, func(name string, value []byte) error { return unix.Lsetxattr(where, name, value, 0) }); err != nil {
		return err
	}
	ts := timeOf(h)
	return unix.UtimesNanoAt(e.dir, e.base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

func timeOf(h *tar.Header) unix.Timespec {
	return unix.Timespec{Sec: h.ModTime.Unix(), Nsec: int64(h.ModTime.Nanosecond())}
}

// settle sets the times of directories, after all that changes them.
func (u *unpacker) settle() error {
	for _, p := range slices.Sorted(maps.Keys(u.times)) {
		dir, base := u.tree.root, "."
		if p != "." {
			parent, name := path.Split(p)
			fd, _, err := u.tree.dir(path.Clean(parent), false)
			if err != nil {
				return disk(u.of, err)
			}
			dir, base = fd, name
		}
		if err := unix.UtimesNanoAt(dir, base, []unix.Timespec{u.times[p], u.times[p]}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return disk(u.of, err)
		}
	}
	return nil
}
