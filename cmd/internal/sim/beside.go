package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// within is an alloc as the store has it, and what runs inside.
type within struct {
	record *schema.TaskRecord
	free   schema.Resources
	tasks  map[schema.JobName]int
}

// checkBeside: alloc sets hold together whenever the cell says that it has converged.
func (w *World) checkBeside() {
	if w.master == nil || !w.hasAllocs() {
		return
	}
	if s := w.Status(); s == nil || !s.Converged {
		return
	}
	if err := w.beside(); err != nil {
		w.violate("%v", err)
	}
}

// hasAllocs reports whether any alloc set is wanted.
func (w *World) hasAllocs() bool {
	for _, r := range w.master.state.Jobs {
		if data := w.master.state.Data[r.Admitted]; data != nil && data.Kind == schema.Allocs {
			return true
		}
	}
	return false
}

// beside errs when a cell that has converged has alloc sets that have come apart. A
// job with as many tasks as its set has allocs has one in each, of the alloc's index;
// of any other no alloc has two more than one that has room for another.
func (w *World) beside() error {
	s := w.master.state
	for _, set := range slices.SortedFunc(maps.Keys(s.Jobs), schema.JobName.Compare) {
		data := s.Data[s.Jobs[set].Admitted]
		if data == nil || data.Kind != schema.Allocs {
			continue
		}
		allocs := w.allocsOf(set, data)
		for _, job := range slices.SortedFunc(maps.Keys(s.Jobs), schema.JobName.Compare) {
			want := s.Data[s.Jobs[job].Admitted]
			if want == nil || want.Kind != schema.Service || want.AllocSet != set.Job || job.User != set.User {
				continue
			}
			if err := w.standsBeside(job, want, allocs); err != nil {
				return err
			}
		}
	}
	return nil
}

// allocsOf returns what is stored of the allocs of a set, by index.
func (w *World) allocsOf(set schema.JobName, data *schema.Job) []within {
	s := w.master.state
	out := make([]within, data.Tasks)
	for i := range out {
		out[i] = within{record: w.oracle.record(set.Task(i)), tasks: map[schema.JobName]int{}}
		if r := out[i].record; r != nil {
			out[i].free = s.Data[r.Data].Task.Resources.Resources
		}
	}
	for name := range s.Jobs {
		w.each(name, func(t *schema.TaskRecord) {
			if t.Machine != "" && t.Alloc != nil && t.Alloc.Of(name).JobName == set && t.Alloc.Index < len(out) {
				a := &out[t.Alloc.Index]
				a.free = a.free.Sub(s.Data[t.Data].Task.Resources.Resources)
				a.tasks[name]++
			}
		})
	}
	return out
}

// standsBeside is beside for one job.
func (w *World) standsBeside(job schema.JobName, want *schema.Job, allocs []within) error {
	takes := func(i int) bool {
		r := allocs[i].record
		if r == nil || r.Machine == "" || r.Stop != nil {
			return false
		}
		_, cordoned := w.oracle.cordoned[r.Machine]
		said := w.master.reported[r.Machine]
		return !cordoned && said != nil && len(said.Conditions) == 0 && len(said.BusyPorts) == 0 && want.Task.Resources.Resources.Fits(allocs[i].free)
	}
	var err error
	if want.Tasks == len(allocs) {
		elsewhere := map[int]int{} // alloc → index of a task that stands in it and belongs in another
		w.each(job, func(t *schema.TaskRecord) {
			if t.Machine != "" && t.Alloc != nil && t.Index < len(allocs) && t.Alloc.Index != t.Index {
				elsewhere[t.Alloc.Index] = t.Index
			}
		})
		w.each(job, func(t *schema.TaskRecord) {
			if t.Machine == "" || t.Alloc == nil || t.Index >= len(allocs) || t.Alloc.Index == t.Index {
				return
			}
			// Two that stand in each other's place are not traded where neither has room.
			if first, inTheWay := elsewhere[t.Index]; takes(t.Index) || inTheWay && takes(first) {
				err = fmt.Errorf("%s has converged, and task %s is in alloc %d: it belongs in that of its index, where there is room", cellName, job.Task(t.Index), t.Alloc.Index)
			}
		})
		return err
	}
	for i := range allocs {
		for j := range allocs {
			if most, least := allocs[i].tasks[job], allocs[j].tasks[job]; most-least > 1 && takes(j) {
				return fmt.Errorf("%s has converged, and alloc %d has %d tasks of %s, and alloc %d has %d: one belongs there, where there is room", cellName, i, most, job, j, least)
			}
		}
	}
	return nil
}
