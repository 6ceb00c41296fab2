package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// unified are cgroups v2.
type unified struct {
	mount  string
	parent string // relative to mount
	group  *cgroup2.Manager
	name   string
	has    map[string]bool
	moved  bool // the agent has made way in parent
}

// v2Mount is where a machine with only v2 has it.
const v2Mount = "/sys/fs/cgroup"

func newUnified(parent, name string) (*unified, error) {
	g := &unified{mount: v2Mount, parent: parent, name: name, has: map[string]bool{}}
	if parent == "" {
		_, own, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
		if err != nil {
			return nil, err
		}
		// An agent before this one may have made way already.
		g.parent = strings.TrimSuffix(own, "/"+g.aside())
		g.moved = g.parent != own
	}
	if parent != "" {
		if err := g.lead(parent); err != nil {
			return nil, err
		}
	}
	b, err := os.ReadFile(g.dir("..", "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	for _, c := range strings.Fields(string(b)) {
		g.has[c] = c == cpuController || c == Memory || c == Processes // cpuset: below
	}
	// Without limits: tasks of an agent before this one may run in it.
	if g.group, err = cgroup2.NewManager(g.mount, g.path(""), &cgroup2.Resources{}); err != nil {
		return nil, err
	}
	limits := cgroup2.ToResources(only(probe(), g.has))
	err = g.try(limits)
	if err != nil && parent == "" {
		// A cgroup other than the root has either processes or controlled
		// children: the agent moves out of the way.
		if err = g.makeWay(); err == nil {
			err = g.try(limits)
		}
	}
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	if _, offered := g.has[CPUSet]; offered {
		g.has[CPUSet] = g.group.ToggleControllers([]string{CPUSet}, cgroup2.Enable) == nil && g.below(CPUSet)
	}
	if _, offered := g.has[ioController]; offered {
		g.has[ioController] = g.group.ToggleControllers([]string{ioController}, cgroup2.Enable) == nil && g.below(ioController)
	}
	g.has[devicesController] = g.filters()
	return g, nil
}

// try makes a group with limits beside those of tasks, and removes it again.
func (g *unified) try(limits *cgroup2.Resources) error {
	const name = "probe"
	_, err := g.group.NewChild(name, limits)
	return errors.Join(err, removeGroups([]string{g.dir(name, "")}))
}

// filters reports whether a cgroup can be given a filter of devices: it takes
// root's rights.
func (g *unified) filters() bool {
	return g.try(&cgroup2.Resources{Devices: deviceRules(nil)}) == nil
}

// below reports whether the tasks' cgroups can be given the controller.
func (g *unified) below(controller string) bool {
	return os.WriteFile(g.dir("", "cgroup.subtree_control"), []byte("+"+controller), 0) == nil
}

// lead makes the parent that was asked for, if it is not there, and has what is
// above it pass on the controllers. What refuses to is seen by what the parent
// then has.
func (g *unified) lead(parent string) error {
	dir := g.mount
	for part := range strings.SplitSeq(strings.Trim(parent, "/"), "/") {
		for _, c := range []string{cpuController, Memory, Processes} {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("cgroup parent: %w", err)
		}
	}
	return nil
}

// aside names the cgroup, beside that of the tasks, of the agent and keepers.
func (g *unified) aside() string { return g.name + "-agent" }

func (g *unified) path(name string) string { return filepath.Join("/", g.parent, g.name, name) }

func (g *unified) dir(name, file string) string {
	return filepath.Join(g.mount, g.path(name), file)
}

// makeWay moves the agent to a cgroup of its own.
func (g *unified) makeWay() error {
	dir := filepath.Join(g.mount, g.parent, g.aside())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	g.moved = true
	return nil
}

func (g *unified) dirs(name string) []string { return []string{g.dir(name, "")} }

func (g *unified) make(name string, limits *specs.LinuxResources) error {
	limits = only(limits, g.has)
	if _, err := os.Stat(g.dir("", "memory.swap.max")); err == nil {
		limits = withoutSwap(limits)
	}
	_, err := g.group.NewChild(name, resources2(limits))
	return err
}

func (g *unified) update(name string, limits *specs.LinuxResources) error {
	limits = only(limits, g.has)
	if _, err := os.Stat(g.dir("", "memory.swap.max")); err == nil {
		limits = withoutSwap(limits)
	}
	if limits.Memory != nil {
		if err := g.shrink(name, *limits.Memory.Limit); err != nil {
			return err
		}
	}
	m, err := cgroup2.Load(g.path(name), cgroup2.WithMountpoint(g.mount))
	if err != nil {
		return err
	}
	return m.Update(resources2(limits))
}

// shrink pushes a cgroup back to limit where it uses more. The kernel would kill
// what does not get there; so the error is EBUSY then, as it is with v1.
func (g *unified) shrink(name string, limit int64) error {
	uses := func() int64 {
		b, _ := os.ReadFile(g.dir(name, "memory.current")) // unreadable: nothing is known to be in the way
		n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		return n
	}
	over := uses() - limit
	if over < 0 {
		return nil
	}
	reclaim(g.dir(name, "memory.reclaim"), over+shrinkMargin)
	if uses() >= limit {
		return &os.PathError{Op: "write", Path: g.dir(name, "memory.max"), Err: unix.EBUSY}
	}
	return nil
}

// reclaim asks the kernel to push so many bytes out, where it can (Linux 5.19).
// It says EAGAIN when it got less, which package os would wait on for ever.
func reclaim(file string, bytes int64) {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte(strconv.FormatInt(bytes, 10)))
	_ = unix.Close(fd)
}

// shrinkMargin is how much more than needed is reclaimed, so that what the task
// allocates meanwhile does not kill it.
const shrinkMargin = 1 << 20

// coreWeight is the weight of one core. The kernel's range is 1 to 10000, and
// only weights of tasks count against each other: this is for limits from 3
// thousandths of a core to 25 cores.
const coreWeight = 400

// resources2 returns limits in the library's terms for v2. Its own conversion of
// shares bends them, and it knows no quota without end.
func resources2(l *specs.LinuxResources) *cgroup2.Resources {
	r := cgroup2.ToResources(l)
	r.Devices = l.Devices
	if l.CPU == nil {
		return r
	}
	if l.CPU.Shares != nil {
		weight := min(max(*l.CPU.Shares*coreWeight/coreShares, 1), 10_000)
		r.CPU.Weight = &weight
	}
	if q := l.CPU.Quota; q != nil && *q < 0 {
		r.CPU.Max = cgroup2.NewCPUMax(nil, l.CPU.Period)
	}
	return r
}

func (g *unified) around() []string {
	return above(g.dir("", ""), g.mount)
}

// memoryLimit reads the least limit on the tasks' parent and what is above it;
// 0 if there is none.
func (g *unified) memoryLimit() int64 {
	least := int64(0)
	for p := filepath.Join("/", g.parent); p != "/"; p = filepath.Dir(p) {
		b, _ := os.ReadFile(filepath.Join(g.mount, p, "memory.max")) // "max" and no file are no limit
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err == nil && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// close removes the tasks' cgroup and moves the agent back, if no task is left.
func (g *unified) close() error {
	dirs := []string{g.dir("", "")}
	if err := removeGroups(dirs); err != nil || !g.moved || !gone(dirs[0]) {
		return err
	}
	parent := filepath.Join(g.mount, g.parent)
	for c := range g.has { // what another has enabled and uses stays
		_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("-"+c), 0)
	}
	if err := os.WriteFile(filepath.Join(parent, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("move the agent back: %w", err)
	}
	return removeGroups([]string{filepath.Join(parent, g.aside())})
}

func gone(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, os.ErrNotExist)
}
