package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/cgroups/v3"
	"github.com/musterhq/muster/nodeagent"
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

// The controllers that muster sets limits with, of which others ask.
const (
	Memory    = "memory"
	Processes = "pids"
	CPUSet    = "cpuset"
)

const (
	cpuController = "cpu"
	// ioController is that of v2, blkioController that of v1.
	ioController    = "io"
	blkioController = "blkio"
	// devicesController is one of v1; with v2 it is a program of each cgroup.
	devicesController = "devices"
	// socketController bounds the buffers of sockets. With v2 they are memory.
	socketController = "sockets"
)

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

// only keeps of l what has is true for.
func only(l *specs.LinuxResources, has map[string]bool) *specs.LinuxResources {
	kept := &specs.LinuxResources{}
	if has[cpuController] && l.CPU != nil {
		cpu := *l.CPU
		kept.CPU = &cpu
	}
	if l.CPU != nil && l.CPU.Cpus != "" && has[CPUSet] {
		if kept.CPU == nil {
			kept.CPU = &specs.LinuxCPU{}
		}
		kept.CPU.Cpus = l.CPU.Cpus
	} else if kept.CPU != nil {
		kept.CPU.Cpus = ""
	}
	if has[Memory] {
		kept.Memory = l.Memory
	}
	if has[Processes] {
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
