package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// surroundings are what tasks can see of the machine.
type surroundings struct {
	isolation isolation
	hidden    []string // real paths, none below another
	writable  []string // likewise, but for the latter
}

// hiddenSize bounds what hides a directory: room for targets of mounts only.
const hiddenSize = "size=64k,nr_inodes=256"

// inside returns where the task itself finds its work directory, its sticky
// directory and its directory for temporary files.
func (s *surroundings) inside(p places) (work, sticky, tmp string) {
	switch {
	case p.apart():
		work, sticky, tmp = ownWork, "", tmpDir
		if p.Sticky != "" {
			sticky = ownSticky
		}
	case s.isolation.namespaces && !s.within(tmpDir):
		work, sticky, tmp = p.Work, p.Sticky, tmpDir
	default:
		work, sticky, tmp = p.Work, p.Sticky, p.Tmp
	}
	return work, sticky, tmp
}

// within reports whether something that tasks may not see lies in dir.
func (s *surroundings) within(dir string) bool {
	return slices.ContainsFunc(s.hidden, func(h string) bool { return below(h, dir) })
}

// sandbox plans what a task sees; nil where the machine has no namespaces.
func (s *surroundings) sandbox(t *schema.TaskSpec, p places, u *keeper.User, given []host.Device) (*keeper.Sandbox, error) {
	if !s.isolation.namespaces {
		return nil, nil
	}
	box := &keeper.Sandbox{UserNamespace: os.Geteuid() != 0, IPC: p.IPC.Namespace}
	if i := t.Isolation; i != nil {
		box.Network = i.Network == schema.NoNetwork
		box.UserNamespace = box.UserNamespace || i.User
	}
	if p.network != nil {
		box.JoinNetwork = p.network.namespace
	}
	hidden := s.hidden
	if box.UserNamespace && os.Geteuid() == 0 {
		hidden = whereReached(hidden)
	}
	devices := s.isolation.ownDevices(p, box, u, given)
	if p.root == "" {
		box.ReadOnly, box.Mounts = true, append(s.overMachine(p, hidden, devices), p.network.over("/")...)
		return box, nil
	}
	mounts, err := s.newRoot(p, hidden)
	if err != nil {
		return nil, fmt.Errorf("task.process.root: %w", err)
	}
	box.Root, box.Mounts = p.Work, slices.Concat(mounts, devices, p.network.over(p.root))
	return box, nil
}

// ownProc is a task's /proc. There, whoever likes may have the kernel watch for pressure
// (Linux 6.5): 20,000 such triggers are made within 0.2 s, and charged to nobody, and what
// holds them takes minutes to end, whatever kills it.
func ownProc() []keeper.Mount {
	mounts := []keeper.Mount{{Kind: keeper.Proc, Target: procDir}}
	if _, err := os.Stat(pressureDir); err == nil {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: pressureDir, Target: pressureDir, ReadOnly: true})
	}
	return mounts
}

// overMachine hides parts of the machine's own tree and puts others in place.
func (s *surroundings) overMachine(p places, hidden []string, devices []keeper.Mount) []keeper.Mount {
	mounts := append(ownProc(), devices...)
	private := []string{devDir}
	for _, dir := range []string{tmpDir, varTmpDir} {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue
		}
		private = append(private, dir)
		m := keeper.Mount{Kind: keeper.Bind, Source: p.Tmp, Target: dir}
		// The path of the work directory must not be made in what the task
		// can write to: it would lead that anywhere.
		if s.within(dir) {
			m = keeper.Mount{Kind: keeper.Tmpfs, Target: dir, Data: "mode=1777"}
		}
		mounts = append(mounts, m)
	}
	if _, err := os.Stat(cgroupMount); err == nil {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: cgroupMount, Target: cgroupMount, ReadOnly: true})
	}
	for _, h := range hidden {
		if !slices.ContainsFunc(private, func(dir string) bool { return below(h, dir) }) {
			mounts = append(mounts, hide(h))
		}
	}
	for _, dir := range s.writable {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: dir, Target: dir})
	}
	mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: p.Work, Target: p.Work})
	if p.Sticky != "" {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: p.Sticky, Target: p.Sticky})
	}
	if p.Shared != "" {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: p.Shared, Target: p.Shared})
	}
	return append(mounts, s.secretsMount(p)...)
}

// whereReached returns what is covered in place of hidden by a task that is root of
// its user namespace alone: it cannot enter a directory that is closed to others,
// not even to cover what is in it. The directory itself it can cover.
func whereReached(hidden []string) []string {
	var out []string
	for _, h := range hidden {
		if closed := host.ClosedAbove(filepath.Dir(h)); closed != "" {
			h = closed
		}
		out = append(out, h)
	}
	slices.Sort(out)
	return slices.CompactFunc(out, func(a, b string) bool { return below(b, a) })
}

// hide covers target, a directory or a socket.
func hide(target string) keeper.Mount {
	if s, err := os.Stat(target); err == nil && !s.IsDir() {
		return keeper.Mount{Kind: keeper.Bind, Source: os.DevNull, Target: target}
	}
	return keeper.Mount{Kind: keeper.Tmpfs, Target: target, Data: "mode=0711," + hiddenSize, ReadOnly: true}
}

// CheckVolumes errs for volumes that New would refuse where these directories and files are
// hidden. They need not be there yet.
func CheckVolumes(volumes map[string]Volume, hide []string) error {
	hidden, err := findHidden(hide)
	if err == nil {
		_, err = (&surroundings{hidden: append(hidden, hide...)}).findVolumes(volumes) // also what is not there yet
	}
	return err
}

// findVolumes returns the real directories of the machine's shared volumes.
func (s *surroundings) findVolumes(given map[string]Volume) (map[string]Volume, error) {
	found := map[string]Volume{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		v := given[name]
		real, err := filepath.EvalSymlinks(v.Path)
		if err != nil {
			return nil, fmt.Errorf("shared volume %s: %w", name, err)
		}
		if info, err := os.Stat(real); err != nil || !info.IsDir() {
			return nil, errors.Join(fmt.Errorf("shared volume %s: %s is not a directory", name, v.Path), err)
		}
		for _, kept := range append([]string{procDir, sysDir, devDir}, s.hidden...) {
			if below(real, kept) || below(kept, real) {
				return nil, fmt.Errorf("shared volume %s: tasks must not see %s, and %s has it", name, kept, v.Path)
			}
		}
		found[name] = Volume{real, v.ReadOnly}
	}
	return found, nil
}

// newRoot puts a root directory together: the entries of the task's own, read-
// only, and beside them what each task needs. So nothing is ever made in the
// task's own, and what is not there is no fault.
func (s *surroundings) newRoot(p places, hidden []string) ([]keeper.Mount, error) {
	open, err := opens(p.root, p.own, s.hidden)
	if err != nil {
		return nil, err
	}
	entries, err := open.entries(p.root, "/")
	if err != nil {
		return nil, err
	}
	mounts := append([]keeper.Mount{{Kind: keeper.Tmpfs, Target: "/", Data: "mode=0755,size=1m", ReadOnly: true}}, entries...)
	for _, h := range hidden {
		if rel, err := filepath.Rel(p.root, h); err == nil && rel != "." && filepath.IsLocal(rel) {
			if top, _, _ := strings.Cut(rel, "/"); slices.Contains(replaced, "/"+top) {
				continue
			}
			m := hide(h)
			m.Target = "/" + rel
			mounts = append(mounts, m)
		}
	}
	mounts = append(append(mounts, ownProc()...),
		keeper.Mount{Kind: keeper.Bind, Source: sysDir, Target: sysDir, ReadOnly: true},
		keeper.Mount{Kind: keeper.Bind, Source: p.Tmp, Target: tmpDir},
		keeper.Mount{Kind: keeper.Bind, Source: p.Work, Target: ownWork})
	if p.Sticky != "" {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: p.Sticky, Target: ownSticky})
	}
	if p.Shared != "" {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: p.Shared, Target: ownShared})
	}
	if p.machines {
		mounts = append(mounts, s.machineOwn(p)...)
	}
	return slices.Concat(mounts, s.secretsMount(p), ofProcess(p.own)), nil
}

// machineOwn is what a task finds in the machine's own root directory that it does not find
// in others.
func (s *surroundings) machineOwn(p places) []keeper.Mount {
	var mounts []keeper.Mount
	if info, err := os.Lstat(varTmpDir); err == nil && info.IsDir() && !s.within(varTmpDir) {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: p.Tmp, Target: varTmpDir})
	}
	for _, dir := range s.writable {
		mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: dir, Target: dir})
	}
	return mounts
}

// CheckWritable errs for directories to which New would refuse to let tasks write where these
// directories and files are hidden. They need not be there yet.
func CheckWritable(dirs, hide []string) error {
	hidden, err := findHidden(hide)
	if err == nil {
		_, err = (&surroundings{hidden: append(hidden, hide...)}).findWritable(dirs) // also what is not there yet
	}
	return err
}

// findWritable returns the real paths of directories that tasks may write to. Those
// that are covered for tasks cannot be among them.
func (s *surroundings) findWritable(dirs []string) ([]string, error) {
	var found []string
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, fmt.Errorf("directory that tasks may write to: %w", err)
		}
		for _, covered := range append([]string{tmpDir, varTmpDir, devDir, procDir, sysDir}, s.hidden...) {
			if below(real, covered) || below(covered, real) {
				return nil, fmt.Errorf("directory that tasks may write to: %s: tasks do not see the machine's %s", dir, covered)
			}
		}
		if info, err := os.Stat(real); err != nil || !info.IsDir() {
			return nil, errors.Join(fmt.Errorf("directory that tasks may write to: %s is not a directory", dir), err)
		}
		found = append(found, real)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// findHidden returns the real paths of what tasks may not see.
func findHidden(dirs []string) ([]string, error) {
	var hidden []string
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("hide %s from tasks: %w", dir, err)
		}
		hidden = append(hidden, real)
	}
	slices.Sort(hidden)
	return slices.CompactFunc(hidden, func(a, b string) bool { return below(b, a) }), nil
}
