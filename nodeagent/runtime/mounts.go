package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/bundle"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// Images are those that this machine has, and its packages. Its methods may be called from any goroutine.
type Images interface {
	// Find returns an image that is here as a whole; false if it is not.
	Find(reference string) (image.Image, bool)
	// FindPackage returns the directory of a package that is here as a whole, by its
	// Source; false if it is not.
	FindPackage(source string) (dir string, ok bool)
}

// Volume is a directory of the machine that tasks may be given.
type Volume struct {
	Path     string
	ReadOnly bool
}

// mounted is something that a task has at a path of its own.
type mounted struct {
	field    string // of the task, for messages
	target   string
	source   string // a directory of the machine; "": memory
	bytes    int64  // of memory
	readOnly bool
	packed   bool // a package, whose files are owned as its archive says
	file     bool // source is no directory
	noExec   bool
}

// stock is what the machine has for tasks to mount.
type stock struct {
	images  Images
	volumes map[string]Volume
}

// own finds what the task has at paths of its own, in the order of these.
func (s *stock) own(t *schema.TaskSpec) ([]mounted, error) {
	var out []mounted
	for i := range t.Packages {
		p := &t.Packages[i]
		dir, ok := "", false
		if s.images != nil {
			dir, ok = s.images.FindPackage(p.Source())
		}
		if !ok {
			return nil, fmt.Errorf("the package %s is not on this machine any more", p.Name)
		}
		out = append(out, mounted{field: "task.packages: " + p.Name, target: p.Path, source: dir, readOnly: true, packed: true})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Volumes)) {
		v := t.Volumes[name]
		m := mounted{field: "task.volumes." + name, target: v.Path, bytes: v.TmpBytes, readOnly: v.ReadOnly}
		if v.Shared != "" {
			of := s.volumes[v.Shared] // the cell asks only machines that have it
			m.source, m.readOnly = of.Path, v.ReadOnly || of.ReadOnly
			if info, err := os.Lstat(m.source); err != nil || !info.IsDir() {
				return nil, errors.Join(fmt.Errorf("the shared volume %s of this machine: %s is not a directory any more", v.Shared, m.source), err)
			}
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b mounted) int { return strings.Compare(a.target, b.target) })
	return out, nil
}

// describe says which volumes the machine has, and whether it has packages.
func (s *stock) describe(a map[string]string) {
	a[schema.HasVolumes] = "true"
	if s.images != nil {
		a[schema.HasPackages] = "true"
	}
	for name, v := range s.volumes {
		has, writable := schema.VolumeAttribute(name)
		if a[has] = "true"; !v.ReadOnly {
			a[writable] = "true"
		}
	}
}

// memoryOptions are those of a volume in memory.
func memoryOptions(bytes int64) []string {
	return []string{"mode=1777", "size=" + strconv.FormatInt(bytes, 10)}
}

// ofProcess plans what a task that is no container has at paths of its own, after all else.
func ofProcess(own []mounted) []keeper.Mount {
	mounts := make([]keeper.Mount, 0, len(own))
	for _, o := range own {
		m := keeper.Mount{Kind: keeper.Bind, Source: o.source, Target: o.target, ReadOnly: o.readOnly, Plain: true}
		if o.source == "" {
			m = keeper.Mount{Kind: keeper.Tmpfs, Target: o.target, Data: strings.Join(memoryOptions(o.bytes), ",")}
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// maxOpened is how many entries a directory may have that is put together anew, since
// something is mounted in it that is not there: each is a mount.
const maxOpened = 512

// opened are the directories of a task's own root, by their paths in it, in which something
// is to be made: they are put together anew of what they have.
type opened map[string]bool

// opens finds them; nothing is made in what is hidden. Links on the way are refused: where they lead the root directory of the
// task may have something else.
func opens(root string, own []mounted, hidden []string) (opened, error) {
	open := opened{}
	for _, o := range own {
		at := "/"
		for name := range strings.SplitSeq(strings.TrimPrefix(o.target, "/"), "/") {
			within := at
			at = path.Join(at, name)
			if slices.Contains(replaced, at) || slices.Contains(hidden, filepath.Join(root, at)) {
				break
			}
			info, err := os.Lstat(filepath.Join(root, at))
			if errors.Is(err, fs.ErrNotExist) {
				for ; within != "/"; within = path.Dir(within) {
					open[within] = true
				}
				break
			}
			if err != nil {
				return nil, nodeagent.TaskError(fmt.Errorf("%s: %w", o.field, err))
			}
			if !info.IsDir() {
				return nil, nodeagent.TaskError(fmt.Errorf("%s: %s is no directory on this machine: name another path", o.field, at))
			}
		}
	}
	return open, nil
}

// entries plans the entries of dir, a directory of the machine, at target.
func (open opened) entries(dir, target string) ([]keeper.Mount, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if target != "/" && len(entries) > maxOpened {
		return nil, nodeagent.TaskError(fmt.Errorf("%s has %d entries, too many for something to be mounted beside them: make the directory on the machine, or name another path", target, len(entries)))
	}
	var mounts []keeper.Mount
	for _, e := range entries {
		at, source := path.Join(target, e.Name()), filepath.Join(dir, e.Name())
		switch {
		case slices.Contains(replaced, at):
		case e.Type()&fs.ModeSymlink != 0:
			text, err := os.Readlink(source)
			if err != nil {
				return nil, err
			}
			mounts = append(mounts, keeper.Mount{Kind: keeper.Link, Target: at, Data: text})
		case open[at]:
			inner, err := open.entries(source, at)
			if err != nil {
				return nil, err
			}
			mounts = append(append(mounts, keeper.Mount{Kind: keeper.Tmpfs, Target: at, Data: "mode=0755,size=1m", ReadOnly: true}), inner...)
		case e.IsDir() || e.Type().IsRegular():
			mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: source, Target: at, ReadOnly: true})
		}
	}
	return mounts, nil
}

// containerMounts are what a container has at paths of its own.
type containerMounts struct {
	packages []string           // that the bundle is to mount, in the order of their names there
	base     []bundle.Directory // that its root directory must have
	empty    []string           // likewise
	mounts   []specs.Mount
}

// ofDevices are what CDI files say that a container has at paths of its own.
func ofDevices(e host.Edits) ([]mounted, error) {
	var out []mounted
	for _, m := range e.Mounts {
		info, err := os.Stat(m.Source)
		if err != nil {
			return nil, fmt.Errorf("CDI: %s: %w", m.Of, err)
		}
		out = append(out, mounted{field: "CDI: " + m.Of, target: m.Target, source: m.Source, readOnly: m.ReadOnly, noExec: m.NoExec, file: !info.IsDir()})
	}
	return out, nil
}

// ofContainer plans them; has are directories that its root directory has anyway, which
// come first in base.
func ofContainer(dir string, layers []string, own []mounted, has []bundle.Directory) (containerMounts, error) {
	i, c := merged(layers), containerMounts{base: slices.Clone(has)}
	for _, o := range own {
		target, err := c.makeWay(i, o)
		if err != nil {
			return c, nodeagent.TaskError(fmt.Errorf("%s: %w", o.field, err))
		}
		m := specs.Mount{Destination: target, Type: "bind", Source: o.source, Options: []string{"rbind", "rprivate", "nosuid", "nodev"}}
		switch {
		case o.file: // of which a runtime takes no recursive options
			m.Options = []string{"bind", "nosuid", "nodev"}
			if o.readOnly {
				m.Options = append(m.Options, "ro")
			}
		case o.packed:
			m.Source = bundle.Path(dir, bundle.Package(len(c.packages)))
			c.packages = append(c.packages, o.source)
			m.Options = append(m.Options, "ro")
		case o.source == "":
			m = specs.Mount{Destination: target, Type: "tmpfs", Source: "tmpfs", Options: append([]string{"nosuid", "nodev"}, memoryOptions(o.bytes)...)}
		case o.readOnly:
			m.Options = append(m.Options, "rro")
		}
		if o.noExec {
			m.Options = append(m.Options, "noexec")
		}
		c.mounts = append(c.mounts, m)
	}
	return c, nil
}

// merged are directories as overlayfs merges them, the lowest first.
type merged []string

// mostLinks bounds how many links of an image are followed on one way, as the kernel does.
const mostLinks = 40

// makeWay adds to base the directories on the way to what is mounted, with the attributes
// that those of the image i have, and returns where that is. Links of the image are followed as the
// task would follow them: from its root directory, and never out of that.
func (c *containerMounts) makeWay(i merged, o mounted) (target string, err error) {
	type directory struct {
		merged
		as bundle.Directory
	}
	way, links := []directory{{merged: i, as: bundle.Directory{Path: "/"}}}, 0
	dir := o.target
	if o.file {
		dir = path.Dir(o.target)
	}
	for left := parts(dir); len(left) > 0; {
		name, here := left[0], way[len(way)-1]
		left = left[1:]
		if name == ".." {
			way = way[:max(len(way)-1, 1)]
			continue
		}
		next := directory{as: bundle.Directory{Path: path.Join(here.as.Path, name), Mode: 0o755}}
		inner, is, err := here.entry(name)
		link, linked := errors.AsType[linkError](err)
		switch {
		case c.has(next.as.Path) && (linked || errors.Is(err, errNoDirectory)): // the image's is not to be seen
		case linked:
			if links++; links > mostLinks {
				return "", fmt.Errorf("%s of the image: links lead to links: name another path", next.as.Path)
			}
			if path.IsAbs(string(link)) {
				way = way[:1]
			}
			left = append(parts(string(link)), left...)
			continue
		case err != nil:
			return "", fmt.Errorf("%s of the image: %w", next.as.Path, err)
		default:
			next.merged = inner
			if is != nil {
				take(&next.as, is)
			}
		}
		way = append(way, next)
	}
	target = way[len(way)-1].as.Path
	if o.file {
		target = path.Join(target, path.Base(o.target))
		c.empty = append(c.empty, target)
	}
	if err := c.free(target, links > 0); err != nil {
		return "", err
	}
	for _, d := range way[1:] {
		if !c.has(d.as.Path) {
			c.base = append(c.base, d.as)
		}
	}
	return target, nil
}

// take gives d the attributes of a directory.
func take(d *bundle.Directory, is *syscall.Stat_t) {
	d.Mode, d.UID, d.GID = fs.FileMode(is.Mode&0o777), int(is.Uid), int(is.Gid)
	if is.Mode&unix.S_ISVTX != 0 {
		d.Mode |= fs.ModeSticky
	}
}

// parts are the names on a path.
func parts(of string) []string {
	return slices.DeleteFunc(strings.Split(of, "/"), func(name string) bool { return name == "" || name == "." })
}

// has reports whether the root directory has a directory of ours at a path.
func (c *containerMounts) has(at string) bool {
	return slices.ContainsFunc(c.base, func(d bundle.Directory) bool { return d.Path == at })
}

// free says why nothing can be mounted at target. What the schema says of paths it cannot say of
// where links of the image lead.
func (c *containerMounts) free(target string, linked bool) error {
	for _, m := range c.mounts {
		if below(target, m.Destination) || below(m.Destination, target) {
			return fmt.Errorf("by a link of the image it is at %s, and something else at %s: name another path", target, m.Destination)
		}
	}
	if linked && (target == "/" || slices.ContainsFunc(replaced, func(dir string) bool { return below(target, dir) })) {
		return fmt.Errorf("a link of the image leads to %s, where nothing can be mounted: name another path", target)
	}
	return nil
}

// errNoDirectory is that something is in the way of a mount.
var errNoDirectory = errors.New("it is no directory: name another path")

// linkError is that a link is in the way, and what it says.
type linkError string

func (to linkError) Error() string { return "it is a link to " + string(to) }

// entry returns the directories that are merged at name, and the attributes of the highest;
// none if there is nothing. The error is a linkError, errNoDirectory or the kernel's.
func (i merged) entry(name string) (inner merged, is *syscall.Stat_t, err error) {
	for _, dir := range slices.Backward(i) {
		full := filepath.Join(dir, name)
		info, err := os.Lstat(full)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		whiteout := ok && s.Mode&unix.S_IFMT == unix.S_IFCHR && s.Rdev == 0
		switch {
		case is == nil && info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(full)
			if err == nil {
				err = linkError(to)
			}
			return nil, nil, err
		case is == nil && !info.IsDir() && !whiteout:
			return nil, nil, errNoDirectory
		case !info.IsDir():
			return inner, is, nil
		}
		if inner = slices.Insert(inner, 0, full); is == nil {
			is = s
		}
		if opaque(full) {
			break
		}
	}
	return inner, is, nil
}

// opaque reports whether a directory of a layer hides those below it.
func opaque(dir string) bool {
	var b [1]byte
	n, err := unix.Lgetxattr(dir, "trusted.overlay.opaque", b[:])
	return err == nil && n == 1 && b[0] == 'y'
}
