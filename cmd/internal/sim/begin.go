package sim

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// checkBegin: a process starts where nothing else of its task is left, and after
// a failure not before at least half of what its policy says has passed: the
// agent takes a part between half and all of that.
func (w *World) checkBegin(m *machine, r *run) {
	a := &r.of.assignment
	for _, x := range m.alive {
		if of := &x.of.assignment; of.Task == a.Task && of.Generation != a.Generation {
			w.violate("task %s generation %d is started on %s, where generation %d still runs", a.Task, a.Generation, m.name, of.Generation)
		}
	}
	last, wait := failures(r, m.clockSet)
	if last == nil || last.boot != m.bootID() || !m.clockSet.Before(last.ended) {
		return // the time of day, by which an agent must go, says nothing
	}
	if waited := w.now.Sub(last.ended); waited < wait/2 {
		w.violate("task %s generation %d is started on %s %s after it failed, want %s at least", a.Task, a.Generation, m.name, waited, wait/2)
	}
}

// failures returns the run before r, nil if it has left nothing, and how long to
// wait after it: the policy's delay, twice that after two in a row, and so on. A run
// in which the machine's clock was set may have been taken for a long one, after
// which the delays begin anew.
func failures(r *run, clockSet time.Time) (last *run, wait time.Duration) {
	policy := r.of.assignment.Job.Task.RestartPolicy()
	for _, x := range r.of.runs {
		switch {
		case x == r || x.exit == nil:
			continue
		case wait == 0 || !clockSet.Before(x.began) || x.ended.Sub(x.began) >= policy.Window():
			wait = policy.Delay()
		default:
			wait = min(2*wait, max(policy.MaxDelay(), policy.Delay()))
		}
		if last = x; x.boot != r.boot {
			wait = 0
		}
	}
	if last != nil && r.of.assignment.Job.Kind == schema.Batch && last.exit.Code == 0 {
		return nil, 0
	}
	return last, wait
}
