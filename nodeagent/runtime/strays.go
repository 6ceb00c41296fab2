package runtime

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent/cgroup"
	"github.com/musterhq/muster/nodeagent/keeper"
)

// What runs is found by the directories of the machine. Those can be lost, by a
// mistake or with a disk, while their tasks run on: then the process table and the
// cgroups tell of them.

// Running lists the directories of the incarnations below tasks that have a living
// keeper, whether the directories are there or not.
func (r *Runtime) Running(tasks string) ([]string, error) {
	found, err := keeper.Scan(tasks)
	dirs := make([]string, 0, len(found))
	for _, k := range found {
		dirs = append(dirs, k.Dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), err
}

// strayPause is the time between two looks at what does not end.
const strayPause = 5 * time.Millisecond

// Sweep kills what runs for a task of this agent and belongs to none that it holds,
// and returns when it is gone: in cgroups that nobody knows, and, where tasks have
// none, by the mark in their environment. held are the directories of incarnations
// that live. It returns the names of what it found.
func (r *Runtime) Sweep(ctx context.Context, tasks string, held []string) (found []string, err error) {
	marks := map[string]bool{}
	groups := map[string]bool{}
	for _, dir := range held {
		marks[filepath.Join(filepath.Dir(dir), workDir)] = true
		groups[groupOf(dir)], groups[allocGroupOf(filepath.Dir(dir))] = true, true
	}
	for {
		stray := r.strayGroups(groups)
		names := make([]string, 0, len(stray))
		for _, dir := range stray {
			cgroup.Dirs{dir}.Kill()
			names = append(names, filepath.Base(dir))
		}
		if r.groups == nil {
			names = append(names, keeper.KillMarked(markVariable, func(mark string) bool {
				return strings.HasPrefix(mark, filepath.Clean(tasks)+"/") && !marks[mark]
			})...)
		}
		if len(names) == 0 {
			return found, nil
		}
		for _, n := range names {
			if !slices.Contains(found, n) {
				found = append(found, n)
			}
		}
		select {
		case <-ctx.Done():
			return found, context.Cause(ctx)
		case <-time.After(strayPause):
		}
	}
}

// strayGroups returns the cgroups of tasks, other than those named, that have
// processes; empty ones it removes.
func (r *Runtime) strayGroups(known map[string]bool) []string {
	if r.groups == nil {
		return nil
	}
	var stray []string
	for _, top := range r.groups.dirs("") {
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

// runningOwners returns the users of the processes in tasks' cgroups, by owner.
func (r *Runtime) runningOwners() map[string]int {
	owners := map[string]int{}
	if r.groups == nil {
		return owners
	}
	for _, top := range r.groups.dirs("") {
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

// isGroup reports whether name is that of a task's cgroup, or of an alloc's: user,
// job, index, generation and, of a task, incarnation.
func isGroup(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) < 4 {
		return false
	}
	_, err := strconv.ParseUint(parts[len(parts)-1], 10, 64)
	return err == nil
}

// groupOf names the cgroup of the incarnation in dir.
func groupOf(dir string) string { return allocGroupOf(filepath.Dir(dir)) + "." + filepath.Base(dir) }

// groupsOf returns the cgroups of that name, whether in an alloc's or not.
func (r *Runtime) groupsOf(name string) []string {
	if r.groups == nil {
		return nil
	}
	var dirs []string
	for _, top := range r.groups.dirs("") {
		for _, dir := range groupsBelow(top) {
			if filepath.Base(dir) == name {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// lostSpec returns what can be known of the task in dir without its Spec: how its
// processes are found.
func (r *Runtime) lostSpec(dir string) keeper.Spec {
	return keeper.Spec{
		Boot: r.boot, Cgroups: r.groupsOf(groupOf(dir)), Mark: markVariable + "=" + filepath.Join(filepath.Dir(dir), workDir),
	}
}
