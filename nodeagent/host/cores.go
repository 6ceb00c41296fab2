package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/musterhq/muster/nodeagent"
)

// cores gives tasks that ask for them cores of their own, and keeps all other
// tasks off these. What each task has stands in its cgroup, where an agent that
// comes after finds it.
type cores struct {
	groups groups // nil: tasks run where the kernel puts them

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
	c.uses[name] = u
}

// take gives the cgroup name, which is about to be made, its cores. It returns
// them as the kernel writes them, "" where it has no cpusets. Other tasks are
// off them when it returns.
func (c *cores) take(name string, whole int) (string, error) {
	if c.groups == nil {
		return "", nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses[name] = nodeagent.CoreUse{Whole: whole}
	if err := c.assign(name); err != nil {
		delete(c.uses, name)
		return "", err
	}
	return formatCores(c.uses[name].Set), nil
}

// change gives a task another number of cores of its own. It keeps those that it
// has when there are not enough.
func (c *cores) change(name string, whole int) error {
	if c.groups == nil {
		if whole > 0 {
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
	c.uses[name] = nodeagent.CoreUse{Whole: whole, Set: was.Set}
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
	sets, _, err := nodeagent.DivideCores(all, uses)
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
				err := os.WriteFile(c.file(name, cpusetFile), []byte(formatCores(sets[i])), 0)
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
	return ParseCores(text)
}

// ParseCores reads a list of cores as the kernel writes it, such as 0-2,5.
func ParseCores(text string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil || a < 0 || b < a || b-a > 1<<16 {
			return nil, fmt.Errorf("list of cores %q", text)
		}
		for core := a; core <= b; core++ {
			list = append(list, core)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// formatCores writes a list of cores as the kernel reads it.
func formatCores(list []int) string {
	words := make([]string, len(list))
	for i, core := range list {
		words[i] = strconv.Itoa(core)
	}
	return strings.Join(words, ",")
}
