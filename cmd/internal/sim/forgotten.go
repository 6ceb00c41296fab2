package sim

import (
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// forgets says that a machine which is not connected is to be forgotten, as `muster
// machine forget` does: mostly one that has not reported for a while.
func (w *World) forgets(a Action) bool {
	if w.master == nil || w.now.Before(w.master.busy) {
		return false
	}
	m := w.machine(a)
	for _, x := range w.machines {
		if a.N%4 != 0 && w.master.state.Machines[x.name] != nil && !w.responds(x.name) {
			m = x
			break
		}
	}
	return w.forget(m)
}

func (w *World) forget(m *machine) bool {
	r := w.master.state.Machines[m.name]
	linked := w.master.epochs[m.name] != 0
	x := schema.Forgotten{Reason: "the simulation says so", By: "somebody"}
	_, err := w.master.Forget(m.name, x, false, w.clock.read(w.now))
	switch {
	case (err == nil) != (r != nil && !linked):
		w.violate("machine %s, which is known: %t, connected: %t, is to be forgotten: %v", m.name, r != nil, linked, err)
		return false
	case err != nil:
		return false
	}
	w.note("machine %s is to be forgotten", m.name)
	if w.asked(); w.master != nil {
		w.dropReport(m.name)
	}
	return true
}

// dropReport has what a machine has said count no more, if it is forgotten, or is to be.
func (w *World) dropReport(machine string) {
	if w.isForgotten(machine) {
		delete(w.master.reported, machine)
		delete(w.master.reportedAt, machine)
	}
}

// isForgotten reports whether somebody has said that a machine is to be forgotten, or it
// is.
func (w *World) isForgotten(machine string) bool {
	r := w.master.state.Machines[machine]
	return r == nil || r.Forgotten != nil
}

// checkForgotten: what is stored speaks of no machine that is not, and one that is to
// be forgotten goes, with all that it holds, as soon as the master decides.
func (w *World) checkForgotten(now time.Time) {
	s := w.master.state
	if s.Recovering() {
		return // nothing is decided
	}
	for name, c := range s.Chunks {
		for i := range c.Tasks {
			t, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			if t.Machine != "" && s.Machines[t.Machine] == nil {
				w.violate("task %s is on machine %s, which is forgotten", task, t.Machine)
			}
			if t.Machine == "" && t.On != "" && s.Machines[t.On] == nil && w.system(name.Job) {
				w.violate("index %d of system job %s belongs on machine %s, which is forgotten", t.Index, name.Job, t.On)
			}
			if t.Machine != "" && s.Machines[t.Machine] != nil && s.Machines[t.Machine].Forgotten != nil && len(w.master.last.Writes) == 0 {
				w.violate("task %s is left on machine %s, which is to be forgotten", task, t.Machine)
			}
		}
	}
	if len(w.master.last.Writes) > 0 {
		return // it goes on with the next step
	}
	for name, r := range s.Machines {
		if r.Forgotten != nil {
			w.violate("machine %s is to be forgotten since %s, and it is %s", name, r.Forgotten.At.Format(time.TimeOnly), now.Format(time.TimeOnly))
		}
	}
}

// system reports whether a job is admitted as a system job.
func (w *World) system(job schema.JobName) bool {
	r := w.master.state.Jobs[job]
	return r != nil && r.Admitted != "" && w.master.state.Data[r.Admitted].Kind == schema.System
}

// checkLowest: a machine that a system job has not had yet gets the lowest index that
// is free.
func (w *World) checkLowest(now map[jobMachine]int) {
	used, indices := w.oracle.indices, map[schema.JobName][]int{} // before, and now
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			indices[name.Job] = append(indices[name.Job], c.Tasks[i].Index)
		}
	}
	w.oracle.indices = indices
	given := map[schema.JobName]int{}
	for h := range now {
		if _, had := w.oracle.indexOn[h]; !had {
			given[h.job]++
		}
	}
	for h, index := range now {
		if _, had := w.oracle.indexOn[h]; had || given[h.job] > 1 { // of several one may have gone at once
			continue
		}
		for lower := range index {
			if !slices.Contains(used[h.job], lower) && !slices.Contains(indices[h.job], lower) && w.system(h.job) {
				w.violate("system job %s has index %d on machine %s, and index %d is free", h.job, index, h.machine, lower)
			}
		}
	}
}
