package nodeagent

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/schema"
)

// item is a generation of a task: in the view, on the machine, or both.
type item struct {
	task       schema.TaskName
	generation uint64
	assigned   *schema.Assignment // nil: not in the view
	held       *Held              // nil: never started here
}

// join returns what is in the view, held or both, by task and generation.
func join(view *schema.View, held []Held) []item {
	var items []item
	if view != nil {
		for i := range view.Assignments {
			a := &view.Assignments[i]
			items = append(items, item{task: a.Task, generation: a.Generation, assigned: a})
		}
	}
	for i := range held {
		h := &held[i]
		items = append(items, item{task: h.Assignment.Task, generation: h.Assignment.Generation, held: h})
	}
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(a.task.Compare(b.task), cmp.Compare(a.generation, b.generation))
	})
	joined := items[:0]
	for _, it := range items {
		if n := len(joined); n > 0 && joined[n-1].task == it.task && joined[n-1].generation == it.generation {
			joined[n-1].assigned = cmp.Or(joined[n-1].assigned, it.assigned)
			joined[n-1].held = cmp.Or(joined[n-1].held, it.held)
			continue
		}
		joined = append(joined, it)
	}
	return joined
}

// job returns the newest version of it: that of the view applies in place.
func (it item) job() *schema.Job {
	if it.assigned != nil {
		return it.assigned.Job
	}
	return it.held.Assignment.Job
}

// allocKey identifies a generation of an alloc.
type allocKey struct {
	name       schema.TaskName
	generation uint64
}

func (it item) isAlloc() bool { return it.job() != nil && it.job().Kind == schema.Allocs }

// host returns the alloc that a task runs in; false if it runs in none.
func (it item) host() (allocKey, bool) {
	a := it.assigned
	if it.held != nil {
		a = &it.held.Assignment
	}
	if a.Alloc == nil {
		return allocKey{}, false
	}
	return allocKey{a.Alloc.Of(a.Task.JobName), a.Alloc.Generation}, true
}
