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

	"github.com/musterhq/muster/nodeagent"
)

// cores gives tasks that ask for them cores of their own, and keeps all other
// tasks off these. What each task has stands in its cgroup, where an agent that
// comes after finds it.
type cores struct {
	groups   groups // nil: tasks run where the kernel puts them
	topology nodeagent.Topology

	mu   sync.Mutex // guards what follows
	uses map[string]nodeagent.CoreUse
}

// errNoCpuset says that a task runs where the kernel puts it.
var errNoCpuset = errors.New("cores of its own, which this machine cannot give: it has no cpuset controller for cgroups")

// find takes over a cgroup that an agent before this one has made.
func (c *cores) find(name string, whole bool) {
	if c.groups == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := nodeagent.CoreUse{}
	u.Set, _ = readCores(c.file(name, cpusetFile)) // none: it is given some with its limits
	if whole {
		u.Whole = len(u.Set)
	}
	u.Near = !whole && len(c.topology.Of(u.Set)) == 1 // what it asks for comes with its limits
	c.uses[name] = u
}

// coreUse returns what limits say of cores.
func coreUse(l *nodeagent.TaskLimits) nodeagent.CoreUse {
	return nodeagent.CoreUse{Whole: l.Cores, Require: l.Require, Near: l.Near, Loose: l.Loose, Milli: l.CPUMilli}
}

// take gives the cgroup name, which is about to be made, the cores that it wants. It
// returns them as the kernel writes them, "" where it has no cpusets. Other tasks are
// off them when it returns.
func (c *cores) take(name string, want nodeagent.CoreUse) (string, error) {
	if c.groups == nil {
		return "", nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses[name] = want
	if err := c.assign(name); err != nil {
		delete(c.uses, name)
		return "", err
	}
	return nodeagent.FormatCores(c.uses[name].Set), nil
}

// change gives a task that runs the cores that it wants now. It keeps those that it
// has when there are not enough.
func (c *cores) change(name string, want nodeagent.CoreUse) error {
	if c.groups == nil {
		if want.Whole > 0 {
			return errNoCpuset
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.uses[name]
	if !ok {
		return nil // it has just ended
	}
	want.Set, want.Nodes, want.Left = was.Set, was.Nodes, was.Left
	if of := c.topology.Of(was.Set); want.Loose && !was.Loose && len(of) == 1 {
		want.Left = &of[0]
	}
	c.uses[name] = want
	err := c.assign("")
	if err != nil {
		c.uses[name] = was
	}
	return err
}

// drop takes back the cores of a task that has ended.
func (c *cores) drop(name string) error {
	if c.groups == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.uses[name]; !ok {
		return nil
	}
	delete(c.uses, name)
	return c.assign("")
}

// nodes returns the NUMA nodes to whose cores the task of the cgroup name is bound, as
// the kernel writes a list of numbers; "" if to none.
func (c *cores) nodes(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.uses[name]
	of := c.topology.Of(u.Set)
	if u.Whole == 0 && len(of) > 1 {
		return ""
	}
	return nodeagent.FormatCores(of)
}

// assign divides the machine's cores among the tasks that there are. The cgroup
// unmade is not there yet.
func (c *cores) assign(unmade string) error {
	all, err := readCores(c.file("", "cpuset.effective_cpus", "cpuset.cpus.effective"))
	if err != nil {
		return fmt.Errorf("the cores of this machine: %w", err)
	}
	names := slices.Sorted(maps.Keys(c.uses))
	// Who comes last does without.
	if i := slices.Index(names, unmade); i >= 0 {
		names = append(slices.Delete(names, i, i+1), unmade)
	}
	uses := make([]nodeagent.CoreUse, len(names))
	for i, name := range names {
		uses[i] = c.uses[name]
	}
	sets, _, err := nodeagent.DivideCores(&c.topology, all, uses)
	if err != nil {
		return err
	}
	var errs []error
	// Those that share leave before others come.
	for _, own := range []bool{false, true} {
		for i, name := range names {
			if (uses[i].Whole > 0) != own || slices.Equal(uses[i].Set, sets[i]) {
				continue
			}
			if name != unmade {
				err := os.WriteFile(c.file(name, cpusetFile), []byte(nodeagent.FormatCores(sets[i])), 0)
				if err != nil && !errors.Is(err, os.ErrNotExist) { // not there: it has ended
					errs = append(errs, err)
					continue
				}
			}
			uses[i].Set = sets[i]
			c.uses[name] = uses[i]
		}
	}
	return errors.Join(errs...)
}

// cpusetFile lists the cores of a cgroup, in v1 and in v2.
const cpusetFile = "cpuset.cpus"

// file returns the first file with one of the given names in the directories of
// the cgroup name, "" if there is none.
func (c *cores) file(name string, files ...string) string {
	for _, dir := range c.groups.dirs(name) {
		for _, f := range files {
			if path := filepath.Join(dir, f); !gone(path) {
				return path
			}
		}
	}
	return ""
}

// readCores reads a file that lists cores; none if it is empty.
func readCores(file string) ([]int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(string(b))
	if text == "" && filepath.Base(file) == cpusetFile {
		return nil, nil
	}
	return nodeagent.ParseCores(text)
}
