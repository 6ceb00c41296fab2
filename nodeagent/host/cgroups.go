package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// ErrCores is in an error when the machine has not the cores that a task shall have
// for itself, or none is left for it beside those of others.
var ErrCores = errors.New("the cores are taken")

// Cgroups are those of the tasks of one agent. Where the machine has none, nothing is
// made and nothing limited.
type Cgroups struct {
	name   string // of the one that holds the tasks'
	groups groups // nil: there are none
	can    support
	cores  cores
	disk   string // the numbers of the state directory's disk, "" for none
	closed []int  // ports
	// noPorts are the rules for those of tasks that have no ports: the kernel checks them once.
	noPorts []*ebpf.Program

	mu   sync.Mutex      // guards what follows
	held map[string]bool // directories that have held tasks' cgroups
}

// findCgroups finds out which cgroups there are for the state directory dir, and notes
// what is missing. parent and closed are as in Config.
func findCgroups(dir, parent string, closed []int, lacks *Lacks) *Cgroups {
	c := &Cgroups{name: GroupsName(dir), disk: diskOf(dir), closed: closed, held: map[string]bool{}}
	c.cores.uses = map[string]nodeagent.CoreUse{}
	g, can, err := openGroups(parent, c.name)
	if err != nil {
		c.can = support{kind: "none", has: map[string]bool{}}
		lacks.Task("cgroups", fmt.Sprintf("no cgroups (%v): limits on memory and CPU are not enforced", err))
	} else {
		c.groups, c.can = g, can
		c.noteMissing(lacks)
	}
	if err := c.tryPortRules(); err != nil {
		lacks.Task("rules for ports", fmt.Sprintf("no rules for ports (%v): tasks can bind each other's ports, and those of the machine's own programs while these are restarted", err))
	} else {
		c.can.has[portRules] = true
	}
	if c.Has(CPUSet) {
		c.cores.groups = c.groups
	}
	return c
}

func (c *Cgroups) noteMissing(lacks *Lacks) {
	for _, l := range []struct{ name, what string }{
		{Memory, "a memory limit"}, {cpuController, "CPU shares"},
	} {
		if !c.Has(l.name) {
			lacks.Task(l.what, fmt.Sprintf("no %s controller for cgroups: tasks run without %s", l.name, l.what))
		}
	}
	if c.can.kind != kindV2 && c.Has(Memory) && !c.Has(socketController) {
		lacks.Machine("the kernel has no bound on the buffers of sockets for cgroups (v1): a task can hold more memory in them than its limit")
	}
	if !c.Has(devicesController) && os.Geteuid() == 0 {
		lacks.Task("a filter of devices", "no filter of devices for cgroups: a task may open any device file that it sees and that its user may")
	}
}

// Found reports whether there are cgroups.
func (c *Cgroups) Found() bool { return c.groups != nil }

// Has reports whether a controller's limits are enforced.
func (c *Cgroups) Has(controller string) bool { return c.can.has[controller] }

// boundsDisk reports whether what a task reads and writes can be bounded.
func (c *Cgroups) boundsDisk() bool {
	return c.disk != "" && (c.Has(ioController) || c.Has(blkioController))
}

// Dirs returns the directories of the cgroup name, one in each hierarchy; nil where
// there are no cgroups.
func (c *Cgroups) Dirs(name string) []string {
	if c.groups == nil {
		return nil
	}
	return c.groups.dirs(name)
}

// Make makes the cgroup name for the task of a, which was given devices, with its
// first limits (see FirstLimits), and takes cores for it if it wants some of its own:
// the error is ErrCores if it gets none. After an error some of it may be there, and
// its cores are taken until Drop.
func (c *Cgroups) Make(name string, a *schema.Assignment, devices []Device) error {
	if c.groups == nil {
		return nil
	}
	first := FirstLimits(a)
	own, err := c.cores.take(name, first.Cores)
	if err != nil {
		return fmt.Errorf("%w: it wants %w", ErrCores, err)
	}
	limits := limits(first)
	limits.CPU.Cpus, limits.Devices = own, deviceRules(devices)
	if err = c.groups.make(name, limits); err == nil {
		err = c.groups.share(name, "", first)
	}
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// MakeAlloc makes the cgroup name for the alloc of a, below which its tasks have
// theirs.
func (c *Cgroups) MakeAlloc(name string, a *schema.Assignment) error {
	if c.groups == nil {
		return nil
	}
	if err := c.groups.make(name, limits(FirstLimits(a))); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// Own lets user alone, beside the agent's own, look into the cgroup name: which tasks of
// other owners there are, and what they use, is not a task's business. A nil user is the
// agent's own, from whom nothing is kept.
func (c *Cgroups) Own(name string, user *User) error {
	if c.groups == nil || user == nil {
		return nil
	}
	var errs []error
	for _, dir := range c.groups.dirs(name) {
		errs = append(errs, os.Chown(dir, -1, user.GID), os.Chmod(dir, 0o750))
		if parent := filepath.Dir(dir); filepath.Base(parent) == c.name {
			errs = append(errs, os.Chmod(parent, 0o711))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// Adopt takes over the cgroup that has the given directories, which an agent before
// this one may have made, and returns its name; "" if there is none. whole says that
// its cores are its own.
func (c *Cgroups) Adopt(dirs []string, whole bool) string {
	if c.groups == nil {
		return ""
	}
	name := c.nameOf(dirs)
	if name != "" {
		c.cores.find(name, whole)
	}
	return name
}

// nameOf returns the name of the cgroup that has the given directories, "" for none.
func (c *Cgroups) nameOf(dirs []string) string {
	if len(dirs) == 0 {
		return ""
	}
	_, name, _ := strings.Cut(dirs[0], "/"+c.name+"/")
	return name
}

// Hold has Close remove the cgroups in which those with the given directories are, if
// they are empty then: those of an agent before this one may be elsewhere.
func (c *Cgroups) Hold(dirs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, dir := range dirs {
		if parent := filepath.Dir(dir); filepath.Base(parent) == c.name {
			c.held[parent] = true
		}
	}
}

// Drop gives the cores of a cgroup, whose task has ended, to others.
func (c *Cgroups) Drop(name string) error { return c.cores.drop(name) }

// around returns the cgroups around the tasks in which memory may be limited.
func (c *Cgroups) around() []string {
	if c.groups == nil {
		return nil
	}
	return c.groups.around()
}

// close removes the cgroups that hold tasks', if there are none.
func (c *Cgroups) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := removeGroups(slices.Collect(maps.Keys(c.held)))
	for _, p := range c.noPorts {
		err = errors.Join(err, p.Close())
	}
	if c.groups != nil {
		err = errors.Join(err, c.groups.close())
	}
	return err
}
