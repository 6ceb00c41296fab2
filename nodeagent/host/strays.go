package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/nodeagent/cgroup"
)

// Strays returns the directories of the cgroups of tasks that have processes, but for
// those named; empty ones it removes.
func (c *Cgroups) Strays(known map[string]bool) []string {
	if c.groups == nil {
		return nil
	}
	var stray []string
	for _, top := range c.groups.dirs("") {
		for _, dir := range groupsBelow(top) {
			name := filepath.Base(dir)
			if known[name] || !isGroup(name) {
				continue
			}
			if len(cgroup.Members(dir)) > 0 {
				stray = append(stray, dir)
			} else {
				_ = os.Remove(dir) // what is below it goes first, and it the next time
			}
		}
	}
	return stray
}

// groupsBelow lists the cgroups of tasks and allocs below top, the deepest first.
func groupsBelow(top string) []string {
	var dirs []string
	for _, pattern := range []string{"*/*", "*"} {
		paths, _ := filepath.Glob(filepath.Join(globbed(top), pattern))
		dirs = append(dirs, slices.DeleteFunc(paths, func(p string) bool {
			info, err := os.Lstat(p)
			return err != nil || !info.IsDir()
		})...)
	}
	return dirs
}

// owners returns the users of the processes in tasks' cgroups, by owner.
func (c *Cgroups) owners() map[string]int {
	owners := map[string]int{}
	if c.groups == nil {
		return owners
	}
	for _, top := range c.groups.dirs("") {
		for _, dir := range groupsBelow(top) {
			owner, _, _ := strings.Cut(filepath.Base(dir), ".")
			if _, known := owners[owner]; known || !isGroup(filepath.Base(dir)) {
				continue
			}
			if id := cgroup.UserOf(dir); id != 0 {
				owners[owner] = id
			}
		}
	}
	return owners
}

// Find returns the directories of the cgroup of that name that are there, whether in
// an alloc's or not.
func (c *Cgroups) Find(name string) []string {
	if c.groups == nil {
		return nil
	}
	var dirs []string
	for _, top := range c.groups.dirs("") {
		for _, dir := range groupsBelow(top) {
			if filepath.Base(dir) == name {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}
