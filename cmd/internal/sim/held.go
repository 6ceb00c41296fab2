package sim

import (
	"cmp"
	"maps"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/schema"
)

// remember keeps what a step has said of tasks that wait.
func (o *oracle) remember(last *control.Output) {
	o.waits = maps.Clone(last.Why)
	o.claimed = map[schema.TaskName]string{}
	for task, c := range last.Claims {
		o.claimed[task] = c.Machine
	}
}

// checkHolds: where a machine is held for a task that has waited long, a step puts only
// what is not in its way: what it may evict, or what has gone when room is expected there,
// or what there is room for besides; and once that time has passed, only the first. What has
// a higher priority or has waited longer has its turn before, whether it may evict the task or
// not: where nobody knows when there is room, none is held for it at times, and then one is for
// the next. before is what was stored when it decided, and now what its clock said.
func (w *World) checkHolds(before snap, now time.Time) {
	for waiter, why := range w.master.last.Why {
		was, is := before.record(waiter), w.oracle.record(waiter)
		if why.Held == "" || w.oracle.waits[waiter].Held != why.Held || was == nil || is == nil || was.Held == nil || is.Held == nil || was.Held.Machine != why.Held || is.Held.Machine != why.Held {
			continue // it may have been held while the step was deciding, or not
		}
		h := heldFor{waiter: waiter, machine: why.Held, since: was.Held.Until, room: later(why.Room, w.oracle.waits[waiter].Room)}
		w.checkHold(&h, before, now)
	}
}

// heldFor is a machine that is held for a task.
type heldFor struct {
	waiter  schema.TaskName
	machine string
	since   time.Time // when room was expected first
	room    time.Time // when it is expected now
}

func (w *World) checkHold(h *heldFor, before snap, now time.Time) {
	s := w.master.state
	want := s.Data[s.Jobs[h.waiter.JobName].Admitted]
	needs := want.Task.Resources.Resources
	var came []schema.TaskName // and is not gone in time
	for name, c := range s.Chunks {
		for i := range c.Tasks {
			t, task, data := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index), s.Data[c.Tasks[i].Data]
			if t.Machine != h.machine || t.Alloc != nil {
				continue
			}
			old := before.record(task)
			switch isNew := old == nil || old.Generation != t.Generation; {
			case mayTake(want.Priority, data.Priority):
				if isNew {
					w.checkBehind(h, t, task, before)
				}
				continue
			case isNew && (data.Priority > want.Priority || data.Priority == want.Priority && w.waitsLonger(task, h.waiter, before)):
				// It had its turn before, also where it may not evict.
			case isNew && w.goesBehind(h, data, task, before, now):
				came = append(came, task)
			case isNew || t.Stop != nil || data.Kind == schema.Batch || h.room.IsZero():
				continue // where it is not known who goes, there is room for both at last whoever does
			}
			needs = needs.Add(data.Task.Resources.Resources)
		}
	}
	if !needs.Fits(w.named(h.machine).info().Capacity) && len(came) > 0 {
		w.violate("tasks %v are put on %s, which is held for %s by %s, and are in its way then", came, h.machine, h.waiter, h.room.Format(time.TimeOnly))
	}
}

// checkBehind: where nobody knows when the waiting task has room, a task that was just put on the machine
// is there only since it may be evicted, and its record says for whom: what protects it later does not
// protect it from that one.
func (w *World) checkBehind(h *heldFor, t *schema.TaskRecord, task schema.TaskName, before snap) {
	s := w.master.state
	waits, data := s.Data[s.Jobs[h.waiter.JobName].Admitted], s.Data[s.Jobs[task.JobName].Admitted]
	if data == nil || data.NeverPreempted() || !w.mayCome(data, task, h.machine, before) {
		return // it has room beside what waits, or is there in any case
	}
	if h.room.IsZero() && !waits.Gathers() && s.Restored == nil && t.Behind != h.waiter.Short() {
		w.violate("task %s is put on %s, which is held for %s, and its record says that it is behind %q", task, h.machine, h.waiter, t.Behind)
	}
}

// mayTake reports whether tasks of a priority may evict those of another one.
func mayTake(is, of schema.Priority) bool {
	return is > of && (is.Band() != of.Band() || !is.Prod())
}

// mayCome reports whether a task comes to a machine that is held only if what it is held for
// lets it: those of system jobs, and those that have made room for themselves or move, are there in any case.
func (w *World) mayCome(data *schema.Job, task schema.TaskName, machine string, before snap) bool {
	return data.Kind != schema.System && w.oracle.claimed[task] != machine && !movesTo(before.record(task), machine)
}

// goesBehind reports whether a task that was just put on a machine that is held runs there
// for longer than until room is expected, which may be not known.
func (w *World) goesBehind(h *heldFor, data *schema.Job, task schema.TaskName, before snap, now time.Time) bool {
	if !w.mayCome(data, task, h.machine, before) {
		return false
	}
	if !h.since.IsZero() && now.After(h.since) {
		w.violate("task %s is put on %s at %s, which is held for %s, where room was expected by %s", task, h.machine, now.Format(time.TimeOnly), h.waiter, h.since.Format(time.TimeOnly))
	}
	lasts := w.lasts(task.JobName, data, before)
	return lasts == 0 || now.Add(lasts).After(h.room)
}

// waitsLonger reports whether a task has its turn before another one of its priority, if both
// have waited long.
func (w *World) waitsLonger(task, than schema.TaskName, before snap) bool {
	since := func(task schema.TaskName) (t time.Time) {
		if r := w.master.state.Jobs[task.JobName]; r != nil {
			t = r.AskedSince(task.Index)
		}
		if r := before.record(task); r != nil {
			if n := len(r.Causes); n > 0 {
				t = later(t, r.Causes[n-1].At)
			}
			t = later(t, r.NotBefore)
		}
		return t
	}
	return cmp.Or(since(task).Compare(since(than)), task.Compare(than)) < 0
}

// movesTo reports whether a task was stopped to go to a machine.
func movesTo(was *schema.TaskRecord, machine string) bool {
	if was == nil {
		return false
	}
	n := len(was.Causes)
	return was.Stop != nil && was.Stop.To == machine || n > 0 && was.Causes[n-1].To == machine
}

// lasts returns for how long a task of a job is expected to run by those that have
// finished: of the job, or else of all of its user in its band; 0 if none has.
func (w *World) lasts(job schema.JobName, data *schema.Job, before snap) time.Duration {
	if data.Kind != schema.Batch {
		return 0
	}
	var own, others time.Duration
	for name, c := range before {
		r := w.master.state.Jobs[name.Job]
		if name.Job.User != job.User || r == nil {
			continue
		}
		of := w.master.state.Data[r.Admitted]
		if of == nil || of.Kind != schema.Batch || of.Priority.Band() != data.Priority.Band() {
			continue
		}
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if n := len(t.Causes); t.Done != nil && n > 0 && t.Causes[n-1].Kind == schema.CauseFinished {
				ran := t.Causes[n-1].At.Sub(t.At)
				if others = max(others, ran); name.Job == job {
					own = max(own, ran)
				}
			}
		}
	}
	if own > 0 {
		return own
	}
	return others
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
