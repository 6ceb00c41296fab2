package runtime

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent/cgroup"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
)

// What runs is found by the directories of the machine. Those can be lost, by a mistake
// or with a disk, while their tasks run on: then they are found in the process table and
// the cgroups.

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
		marks[filepath.Join(filepath.Dir(dir), host.WorkDir)] = true
		groups[host.TaskGroupIn(dir)], groups[host.AllocGroupIn(filepath.Dir(dir))] = true, true
	}
	if err := r.safe.keep(held); err != nil {
		r.cfg.Log.Error("cannot remove the secrets of tasks that ended", "err", err)
	}
	for {
		stray := r.host.Cgroups().Strays(groups)
		names := make([]string, 0, len(stray))
		for _, dir := range stray {
			cgroup.Dirs{dir}.Kill()
			names = append(names, filepath.Base(dir))
		}
		if !r.host.Cgroups().Found() {
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

// lostSpec returns what can be known of the task in dir without its Spec: how its
// processes are found.
func (r *Runtime) lostSpec(dir string) keeper.Spec {
	return keeper.Spec{
		Boot: r.host.Boot(), Cgroups: r.host.Cgroups().Find(host.TaskGroupIn(dir)), Mark: markVariable + "=" + filepath.Join(filepath.Dir(dir), host.WorkDir),
	}
}
