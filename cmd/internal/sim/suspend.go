package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// suspend suspends a job that runs, or all when N is a multiple of 8, for up to 5 minutes, or
// without an end.
func (w *World) suspend(a Action) bool {
	if w.master == nil {
		return false
	}
	x := schema.Suspension{Name: schema.AllJobs, Reason: "the simulation says so", By: "somebody"}
	if running := slices.SortedFunc(maps.Keys(w.master.state.Jobs), schema.JobName.Compare); a.N%8 != 0 && len(running) > 0 {
		x.Name = running[modulo(a.Job, len(running))].Short()
	}
	lasts := time.Duration(0)
	if n := modulo(a.N/8, 600); n < 300 {
		lasts = time.Duration(1+n) * time.Second
	}
	if w.master.Suspend(x, lasts, w.clock.read(w.now)) != nil {
		return false
	}
	w.asked()
	return true
}

// resume ends the N-th suspension that there is.
func (w *World) resume(a Action) bool {
	if w.master == nil || len(w.master.state.Suspensions) == 0 {
		return false
	}
	names := slices.Sorted(maps.Keys(w.master.state.Suspensions))
	if _, err := w.master.Resume(names[modulo(a.N, len(names))], "somebody", w.clock.read(w.now)); err != nil {
		return false
	}
	w.asked()
	return true
}

// asked has the master do what somebody has asked it for.
func (w *World) asked() {
	err := w.carryOut()
	switch {
	case errors.Is(err, store.ErrInjected):
		w.KillMaster()
		return
	case err != nil:
		w.violate("the master: %v", err)
	}
	w.master.news = true
}

// suspendedJob is a suspended job as it was before a step.
type suspendedJob struct {
	admitted schema.Digest
	stopping map[uint64]bool // generations that were stopping
}

// suspended returns the jobs that a step must leave as they are: those that are
// suspended, and the alloc sets that such run in.
func (w *World) suspended() map[schema.JobName]suspendedJob {
	s := w.master.state
	out := map[schema.JobName]suspendedJob{}
	for name, r := range s.Jobs {
		if r.Admitted == "" || s.Suspensions[name.Short()] == nil && !s.Suspended() {
			continue
		}
		out[name] = suspendedJob{admitted: r.Admitted}
		if set, inside := s.Data[r.Admitted].HostSet(); inside && s.Jobs[set] != nil {
			out[set] = suspendedJob{admitted: s.Jobs[set].Admitted}
		}
	}
	for name, g := range out {
		g.stopping = map[uint64]bool{}
		w.each(name, func(t *schema.TaskRecord) { g.stopping[t.Generation] = t.Stop != nil })
		out[name] = g
	}
	return out
}

// checkSuspended: a step leaves suspended jobs as they were. Their tasks may be
// preempted, and lost; nothing else is a reason to stop one.
func (w *World) checkSuspended(before map[schema.JobName]suspendedJob) {
	for name, was := range before {
		r := w.master.state.Jobs[name]
		if r == nil || r.Admitted != was.admitted {
			w.violate("job %s is suspended, and its data has changed", name)
			continue
		}
		w.each(name, func(t *schema.TaskRecord) {
			if t.Stop != nil && !was.stopping[t.Generation] && t.Stop.Kind != schema.CausePreempted && t.Stop.Kind != schema.CauseAllocGone {
				w.violate("job %s is suspended, and its task %d is stopped: %s", name, t.Index, t.Stop)
			}
		})
	}
}
