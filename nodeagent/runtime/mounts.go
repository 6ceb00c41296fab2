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
	mounts   []specs.Mount
}

// ofContainer plans them; has are directories that its root directory has anyway, which
// come first in base.
func ofContainer(dir string, layers []string, own []mounted, has []bundle.Directory) (containerMounts, error) {
	i, c := merged(layers), containerMounts{base: slices.Clone(has)}
	for _, o := range own {
		var err error
		if c.base, err = i.makeWay(o, c.base); err != nil {
			return c, err
		}
		m := specs.Mount{Destination: o.target, Type: "bind", Source: o.source, Options: []string{"rbind", "rprivate", "nosuid", "nodev"}}
		switch {
		case o.packed:
			m.Source = bundle.Path(dir, bundle.Package(len(c.packages)))
			c.packages = append(c.packages, o.source)
			m.Options = append(m.Options, "ro")
		case o.source == "":
			m = specs.Mount{Destination: o.target, Type: "tmpfs", Source: "tmpfs", Options: append([]string{"nosuid", "nodev"}, memoryOptions(o.bytes)...)}
		case o.readOnly:
			m.Options = append(m.Options, "rro")
		}
		c.mounts = append(c.mounts, m)
	}
	return c, nil
}

// merged are directories as overlayfs merges them, the lowest first.
type merged []string

// makeWay adds to base the directories on the way to what is mounted, with the attributes
// that the image's have. Links of the image are refused: one could lead to what is muster's
// own in the container.
func (i merged) makeWay(o mounted, base []bundle.Directory) ([]bundle.Directory, error) {
	at := "/"
	for name := range strings.SplitSeq(strings.TrimPrefix(o.target, "/"), "/") {
		at = path.Join(at, name)
		var is *syscall.Stat_t
		var err error
		if i, is, err = i.entry(name); err != nil {
			return nil, nodeagent.TaskError(fmt.Errorf("%s: %s of the image: %w", o.field, at, err))
		}
		if slices.ContainsFunc(base, func(d bundle.Directory) bool { return d.Path == at }) {
			continue
		}
		d := bundle.Directory{Path: at, Mode: 0o755}
		if is != nil {
			d.Mode, d.UID, d.GID = fs.FileMode(is.Mode&0o777), int(is.Uid), int(is.Gid)
			if is.Mode&unix.S_ISVTX != 0 {
				d.Mode |= fs.ModeSticky
			}
		}
		base = append(base, d)
	}
	return base, nil
}

// errNoDirectory is that something is in the way of a mount.
var errNoDirectory = errors.New("it is no directory: name another path")

// entry returns the directories that are merged at name, and the attributes of the highest;
// none if there is nothing.
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
