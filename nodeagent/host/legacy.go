package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// legacy are cgroups v1, with a v2 tree beside them in hybrid mode: v1 limits,
// v2 kills.
type legacy struct {
	name       string
	base       cgroup1.Path // of the parent, in each hierarchy
	subsystems []cgroup1.Subsystem
	parents    []string // the group's directory in each of their hierarchies
	unified    string   // directory of the group in the v2 tree, "" without
	swap       bool     // the kernel counts what is swapped out
	has        map[string]bool
}

// wanted are the v1 controllers that tasks are put in. The freezer holds still
// what is killed.
var wanted = map[cgroup1.Name]bool{cgroup1.Cpu: true, cgroup1.Cpuset: true, cgroup1.Memory: true, cgroup1.Pids: true, cgroup1.Devices: true, cgroup1.Blkio: true, cgroup1.Freezer: true}

// unifiedMount is where hybrid mode has its v2 tree.
const unifiedMount = "/sys/fs/cgroup/unified"

func newLegacy(parent, name string, hybrid bool) (*legacy, error) {
	all, err := cgroup1.Default()
	if err != nil {
		return nil, err
	}
	g := &legacy{name: name, base: cgroup1.NestedPath(""), has: map[string]bool{}}
	if parent != "" {
		g.base = cgroup1.StaticPath(parent)
	}
	var refused error
	for _, s := range all {
		if !wanted[s.Name()] && (s.Name() != cgroup1.Cpuacct || hybrid || together()) {
			continue
		}
		dir, err := g.try(s)
		if err != nil {
			refused = err
			continue
		}
		g.subsystems, g.parents = append(g.subsystems, s), append(g.parents, dir)
		g.has[string(s.Name())] = true
	}
	if d := g.memoryDir(); d != "" {
		_, err := os.Stat(filepath.Join(filepath.Dir(d), socketLimit))
		g.has[socketController] = err == nil
		_, err = os.Stat(filepath.Join(d, swapLimit))
		g.swap = err == nil
	}
	if hybrid {
		if err := g.findUnified(parent); err != nil && refused == nil {
			refused = err
		}
	}
	if len(g.subsystems) == 0 && g.unified == "" {
		return nil, errors.Join(refused, errors.New("no controller can be used"))
	}
	return g, nil
}

// together reports whether what accounts for CPU is mounted with what limits it. Then,
// and in hybrid mode, where the v2 tree accounts for it, a group of its own would show
// nothing more.
func together() bool {
	a, errA := os.Stat(filepath.Join(v2Mount, string(cgroup1.Cpu)))
	b, errB := os.Stat(filepath.Join(v2Mount, string(cgroup1.Cpuacct)))
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// try makes a group with a limit in one hierarchy, removes it again, and returns
// where the tasks' groups shall be.
func (g *legacy) try(s cgroup1.Subsystem) (string, error) {
	d, ok := s.(interface{ Path(string) string })
	if !ok {
		return "", fmt.Errorf("cgroup controller %s has no directory", s.Name())
	}
	path, err := g.path(s.Name(), "")
	if err != nil {
		return "", err
	}
	dir := d.Path(path)
	probed := func(n cgroup1.Name) (string, error) { return g.path(n, "probe") }
	one := func() ([]cgroup1.Subsystem, error) { return []cgroup1.Subsystem{s}, nil }
	_, err = cgroup1.New(probed, probe(), cgroup1.WithHierarchy(one))
	return dir, errors.Join(err, removeGroups([]string{filepath.Join(dir, "probe")}))
}

// findUnified finds the group's place in the v2 tree.
func (g *legacy) findUnified(parent string) error {
	if parent == "" {
		var err error
		if _, parent, err = cgroups.ParseCgroupFileUnified("/proc/self/cgroup"); err != nil {
			return err
		}
	}
	dir := filepath.Join(unifiedMount, parent, g.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	g.unified = dir
	return nil
}

// path returns the path of group name in n's hierarchy, relative to its mount.
func (g *legacy) path(n cgroup1.Name, name string) (string, error) {
	p, err := g.base(n)
	return filepath.Join(p, g.name, name), err
}

func (g *legacy) dirs(name string) []string {
	var dirs []string
	for _, p := range g.parents {
		dirs = append(dirs, filepath.Join(p, name))
	}
	if g.unified != "" {
		dirs = append(dirs, filepath.Join(g.unified, name))
	}
	return dirs
}

func (g *legacy) make(name string, limits *specs.LinuxResources) error {
	limits = g.only(limits)
	if g.swap {
		limits = withoutSwap(limits)
	}
	for i, s := range g.subsystems {
		dir := filepath.Join(g.parents[i], name)
		if s.Name() == cgroup1.Cpuset {
			if err := g.inherit(name, s, limits); err != nil {
				return err
			}
		} else if err := makeIn(dir, s.Name(), limits); err != nil {
			return err
		}
	}
	if g.unified == "" {
		return nil
	}
	return makeIn(filepath.Join(g.unified, name), "", limits)
}

// inheritFile says of a group that those made in it begin with its cores, and with its memory nodes.
const inheritFile = "cgroup.clone_children"

// inherit makes the group name in the hierarchy of cpusets, which s is, with the cores of the one around it unless
// limits name others. The kernel copies them where it was asked to; else that is left to
// the library, which reads and writes those of each group above, twenty files in all, and
// the next one will be copied.
func (g *legacy) inherit(name string, s cgroup1.Subsystem, limits *specs.LinuxResources) error {
	dir := filepath.Join(g.parentOf(cgroup1.Cpuset), name)
	switch {
	case !inherits(dir):
		path := func(n cgroup1.Name) (string, error) { return g.path(n, name) }
		one := func() ([]cgroup1.Subsystem, error) { return []cgroup1.Subsystem{s}, nil }
		_, err := cgroup1.New(path, limits, cgroup1.WithHierarchy(one))
		return err
	case limits.CPU == nil || limits.CPU.Cpus == "":
		return nil
	}
	return os.WriteFile(filepath.Join(dir, cpusetFile), []byte(limits.CPU.Cpus), 0)
}

// inherits makes the group dir, and reports whether the kernel has copied what the one around it has; it
// is asked to do so from now on.
func inherits(dir string) bool {
	if os.Mkdir(dir, 0o755) != nil { // it is there, or the one around it is not
		return false
	}
	nodes, _ := os.ReadFile(filepath.Join(dir, "cpuset.mems")) // unreadable: as if none were copied
	if len(bytes.TrimSpace(nodes)) > 0 {
		return true
	}
	_ = os.WriteFile(filepath.Join(filepath.Dir(dir), inheritFile), []byte("1"), 0) // refused: it goes on as before
	return false
}

func (g *legacy) update(name string, limits *specs.LinuxResources) error {
	limits = g.only(limits)
	path := func(n cgroup1.Name) (string, error) { return g.path(n, name) }
	active := func() ([]cgroup1.Subsystem, error) { return g.subsystems, nil }
	c, err := cgroup1.Load(path, cgroup1.WithHierarchy(active))
	if err != nil {
		return err
	}
	if limits.Memory == nil {
		return c.Update(limits)
	}
	dir := filepath.Join(g.memoryDir(), name)
	swap := &specs.LinuxResources{Memory: &specs.LinuxMemory{Swap: limits.Memory.Limit}}
	if !g.swap {
		return c.Update(limits)
	}
	// The limit on memory is never above that on memory and swap.
	b, err := os.ReadFile(filepath.Join(dir, "memory.limit_in_bytes"))
	if err != nil {
		return err
	}
	order := []*specs.LinuxResources{limits, swap}
	if now, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err != nil || now < *limits.Memory.Limit {
		order = []*specs.LinuxResources{swap, limits}
	}
	for _, l := range order {
		if err := c.Update(l); err != nil {
			return err
		}
	}
	return nil
}

// only keeps of limits those that there are here.
func (g *legacy) only(limits *specs.LinuxResources) *specs.LinuxResources {
	limits = only(limits, g.has)
	if limits.Memory != nil && !g.has[socketController] {
		m := *limits.Memory
		m.KernelTCP = nil
		limits.Memory = &m
	}
	return limits
}

// socketLimit is the file that bounds the buffers of sockets: of all kinds that
// the kernel has a bound for at all (tcp_mem, udp_mem), whatever its name. As long
// as nothing is written to it, nothing is counted.
const socketLimit = "memory.kmem.tcp.limit_in_bytes"

// swapLimit bounds memory and swap together, where the kernel counts what is swapped out.
const swapLimit = "memory.memsw.limit_in_bytes"

// memoryDir returns the group's directory in the memory controller's hierarchy,
// "" without one.
func (g *legacy) memoryDir() string { return g.parentOf(cgroup1.Memory) }

// parentOf returns the group's directory in a controller's hierarchy, "" without
// one.
func (g *legacy) parentOf(controller cgroup1.Name) string {
	for i, s := range g.subsystems {
		if s.Name() == controller {
			return g.parents[i]
		}
	}
	return ""
}

func (g *legacy) around() []string {
	d := g.memoryDir()
	if d == "" {
		return nil
	}
	return above(d, filepath.Join(v2Mount, Memory))
}

func (g *legacy) support() support {
	can := support{kind: "v1", has: g.has, memory: g.memoryLimit()}
	if g.unified != "" {
		can.kind = kindHybrid
	}
	return can
}

// memoryLimit reads the least limit on the agent's own cgroup and those above;
// 0 if there is none.
func (g *legacy) memoryLimit() int64 {
	d := g.memoryDir()
	if d == "" {
		return 0
	}
	b, _ := os.ReadFile(filepath.Join(filepath.Dir(d), "memory.stat")) // unreadable: no limit is known
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "hierarchical_memory_limit" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func (g *legacy) close() error { return removeGroups(g.dirs("")) }
