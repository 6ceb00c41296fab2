package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/cgroups/v3"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// limiter changes the limits of cgroups that are there.
type limiter interface {
	// update changes limits of the cgroup name, those that are set in limits.
	update(name string, limits *specs.LinuxResources) error
	// share sets the weight of the cgroup name on disks, and the bound of limits on
	// what it reads and writes on one, whose numbers disk is; "" for none.
	share(name, disk string, l nodeagent.TaskLimits) error
	// limit bounds what is in all of them together.
	limit(b bounds) error
}

// groups makes cgroups for tasks.
type groups interface {
	limiter
	// dirs returns the directories of the cgroup name, one in each hierarchy.
	dirs(name string) []string
	// make makes them, with the given limits. After an error some may be there.
	make(name string, limits *specs.LinuxResources) error
	// around returns the cgroups around the tasks in which memory may be
	// limited, that of all tasks first.
	around() []string
	// close removes what was made to hold the tasks', if there are none.
	close() error
}

// support is what the machine's cgroups can do.
type support struct {
	kind string          // v1, v2 or hybrid; none
	has  map[string]bool // which of cpu, cpuset, memory, pids, devices and sockets are limited
	// memory is what the agent's surroundings may use; 0: no limit.
	memory int64
}

// The kinds of cgroups that have a v2 tree.
const (
	kindV2     = "v2"
	kindHybrid = "hybrid"
)

// The controllers that muster sets limits with.
const (
	cpuController    = "cpu"
	memoryController = "memory"
	pidsController   = "pids"
	cpusetController = "cpuset"
	// ioController is that of v2, blkioController that of v1.
	ioController    = "io"
	blkioController = "blkio"
	// devicesController is one of v1; with v2 it is a program of each cgroup.
	devicesController = "devices"
	// socketController bounds the buffers of sockets. With v2 they are memory.
	socketController = "sockets"
)

// groupsName names the cgroup that holds the tasks of one state directory, so
// that several agents can live in one cgroup.
func groupsName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "muster-" + hex.EncodeToString(sum[:4])
}

// findGroups finds out which cgroups there are, and notes what is missing.
func (r *Runtime) findGroups() {
	g, can, err := openGroups(r.cfg.CgroupParent, groupsName(r.cfg.Dir))
	if err != nil {
		r.can = support{kind: "none"}
		r.lack("cgroups", fmt.Sprintf("no cgroups (%s): limits on memory and CPU are not enforced", strings.ReplaceAll(err.Error(), "\n", "; ")))
		return
	}
	r.groups, r.can = g, can
	for _, c := range []struct{ name, what string }{
		{memoryController, "a memory limit"}, {cpuController, "CPU shares"},
	} {
		if !can.has[c.name] {
			r.lack(c.what, fmt.Sprintf("no %s controller for cgroups: tasks run without %s", c.name, c.what))
		}
	}
	if can.kind != "v2" && can.has[memoryController] && !can.has[socketController] {
		r.notes = append(r.notes, "the kernel has no bound on the buffers of sockets for cgroups (v1): a task can hold more memory in them than its limit")
	}
	if !can.has[devicesController] && os.Geteuid() == 0 {
		r.lack("a filter of devices", "no filter of devices for cgroups: a task may open any device file that it sees and that its user may")
	}
}

func openGroups(parent, name string) (groups, support, error) {
	switch mode := cgroups.Mode(); mode {
	case cgroups.Legacy, cgroups.Hybrid:
		g, err := newLegacy(parent, name, mode == cgroups.Hybrid)
		if err != nil {
			return nil, support{}, err
		}
		return g, g.support(), nil
	case cgroups.Unified:
		g, err := newUnified(parent, name)
		if err != nil {
			return nil, support{}, err
		}
		return g, support{kind: kindV2, has: g.has, memory: g.memoryLimit()}, nil
	}
	return nil, support{}, errors.New("none are mounted")
}

// limits returns what the task of a may use at most as it starts, in the
// library's terms.
func limits(a *schema.Assignment) *specs.LinuxResources {
	l := firstLimits(a)
	return &specs.LinuxResources{Pids: pidsLimit(l), CPU: cpuLimits(l), Memory: memoryLimits(l)}
}

// only keeps of l what has is true for.
func only(l *specs.LinuxResources, has map[string]bool) *specs.LinuxResources {
	kept := &specs.LinuxResources{}
	if has[cpuController] && l.CPU != nil {
		cpu := *l.CPU
		kept.CPU = &cpu
	}
	if l.CPU != nil && l.CPU.Cpus != "" && has[cpusetController] {
		if kept.CPU == nil {
			kept.CPU = &specs.LinuxCPU{}
		}
		kept.CPU.Cpus = l.CPU.Cpus
	} else if kept.CPU != nil {
		kept.CPU.Cpus = ""
	}
	if has[memoryController] {
		kept.Memory = l.Memory
	}
	if has[pidsController] {
		kept.Pids = l.Pids
	}
	if has[devicesController] {
		kept.Devices = l.Devices
	}
	return kept
}

// withoutSwap makes a memory limit one on memory and swap together: what is
// swapped out is not within a task's limit.
func withoutSwap(l *specs.LinuxResources) *specs.LinuxResources {
	if l.Memory == nil {
		return l
	}
	c, m := *l, *l.Memory
	m.Swap = m.Limit
	c.Memory = &m
	return &c
}

// probe are limits that any machine can give, to find out whether it does.
func probe() *specs.LinuxResources {
	shares, memory, pids := uint64(2), int64(smallest), int64(16)
	return &specs.LinuxResources{
		CPU:     &specs.LinuxCPU{Shares: &shares},
		Memory:  &specs.LinuxMemory{Limit: &memory},
		Pids:    &specs.LinuxPids{Limit: &pids},
		Devices: deviceRules(nil),
	}
}

// above returns the directories from dir up to, and without, the mount.
func above(dir, mount string) []string {
	var dirs []string
	for ; strings.HasPrefix(dir, mount+"/"); dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
	}
	return dirs
}

// removeGroups removes empty cgroups; what is not empty or not there is left.
func removeGroups(dirs []string) error {
	var errs []error
	for _, d := range dirs {
		err := os.Remove(d)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !busy(d) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// busy reports whether dir has processes or cgroups below it.
func busy(dir string) bool {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if len(strings.TrimSpace(string(b))) > 0 {
		return true
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			return true
		}
	}
	return errors.Is(err, fs.ErrNotExist)
}
