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
	last, wait := failures(m, r)
	if last == nil || last.boot != m.bootID() || !m.clockSet.Before(last.ended) {
		return // the time of day, by which an agent must go, says nothing
	}
	if waited := w.now.Sub(last.ended); waited < wait/2 {
		w.violate("task %s generation %d is started on %s %s after it failed, want %s at least", a.Task, a.Generation, m.name, waited, wait/2)
	}
}

// checkGrace: a process is killed when its grace period is over, not before, as
// far as the machine's clock goes right. Nothing here runs out of resources, for
// which a period is cut short.
func (w *World) checkGrace(m *machine, r *run) {
	a := &r.of.assignment
	grace := time.Duration(a.Job.Task.GraceSeconds) * time.Second
	if !r.alive || !m.clockSet.Before(r.termed) {
		return
	}
	if had := w.now.Sub(r.termed); had < grace {
		w.violate("task %s generation %d is killed on %s %s after SIGTERM, want %s at least", a.Task, a.Generation, m.name, had, grace)
	}
}

// failures returns the run before r, nil if it has left nothing, and how long to
// wait after it: the policy's delay, twice that after two in a row, and so on. A
// run during which the clock was set may have looked long enough to begin anew.
func failures(m *machine, r *run) (last *run, wait time.Duration) {
	policy := r.of.assignment.Job.Task.RestartPolicy()
	for _, x := range r.of.runs {
		switch {
		case x == r || x.exit == nil:
			continue
		case x.halted: // which is no failure
			last = x
			continue
		case wait == 0 || x.ended.Sub(x.began) >= policy.Window() || !m.clockSet.Before(x.began):
			wait = policy.Delay()
		default:
			wait = min(2*wait, max(policy.MaxDelay(), policy.Delay()))
		}
		if last = x; x.boot != r.boot {
			wait = 0
		}
	}
	if last != nil && (last.halted || r.of.assignment.Job.Kind == schema.Batch && last.exit.Code == 0) {
		return nil, 0
	}
	return last, wait
}
