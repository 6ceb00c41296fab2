package sim

import (
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// givesUp commits that a machine is declared gone, or no longer. Mostly it is one
// that has not reported for a while, as people do it.
func (w *World) givesUp(a Action) bool {
	m := w.machine(a)
	for _, x := range w.machines {
		if a.N%4 != 0 && w.now.Sub(w.oracle.reported[x.name]) > silentAfter && !w.repo.machines[x.name].Gone {
			m = x
			break
		}
	}
	return w.declare(m.name, func(o *schema.Machine) { o.Gone = !o.Gone })
}

// takesBack commits that a machine which speaks is not declared gone any longer.
func (w *World) takesBack(Action) bool {
	for _, m := range w.machines {
		if w.repo.machines[m.name].Gone && w.now.Sub(w.oracle.reported[m.name]) < silentAfter {
			return w.declare(m.name, func(o *schema.Machine) { o.Gone = false })
		}
	}
	return false
}

// checkGone takes down since when objects that are in force declare machines
// gone.
func (w *World) checkGone() {
	now := map[string]time.Time{}
	for _, o := range w.inForce() {
		for _, m := range w.machines {
			if !o.Gone || !speaksOf(&o, m) {
				continue
			}
			now[m.name] = w.now
			if since, ok := w.oracle.gone[m.name]; ok {
				now[m.name] = since
			}
		}
	}
	w.oracle.gone = now
}

// spokenWithin is how long after it was declared gone a machine may still be
// report and be taken for gone: until what it says is stored.
const spokenWithin = 30 * time.Second

// isGone reports whether a machine is declared gone and has not reported
// since.
func (w *World) isGone(machine string) bool {
	for _, o := range w.inForce() {
		if o.Gone && speaksOf(&o, w.named(machine)) {
			since, known := w.oracle.gone[machine]
			return !known || w.oracle.reported[machine].Sub(since) < spokenWithin
		}
	}
	return false
}

// checkTwin: of a job that must never run twice no process begins while another
// of the task lives, but for one on a machine that was declared gone while it ran;
// and none begins there that an agent of a later life has started, nor in any life
// of an agent before the machine has joined a master that leads.
func (w *World) checkTwin(on *machine, r *run) {
	a := &r.of.assignment
	if !a.Job.NeverTwice() {
		return
	}
	joined := w.oracle.joined[on.name]
	if joined.Before(on.began) {
		w.violate("task %s generation %d starts on %s before a master has confirmed it in the life of its agent: it must never run twice", a.Task, a.Generation, on.name)
	}
	if since, gone := w.oracle.written[a.Generation]; gone {
		if joined.After(since) {
			w.violate("task %s generation %d starts on %s, from which it was rescheduled before: it must never run twice", a.Task, a.Generation, on.name)
		}
		return
	}
	for _, m := range w.machines {
		for _, x := range m.alive {
			_, gone := w.oracle.written[x.of.assignment.Generation]
			if gone = gone || w.oracle.unknown[x.of.assignment.Generation]; x != r && x.of.assignment.Task == a.Task && !gone {
				w.violate("task %s generation %d starts while generation %d lives on %s: it must never run twice", a.Task, a.Generation, x.of.assignment.Generation, m.name)
			}
		}
	}
}

// checkOnce: a step gives up the generation of a task that must never run twice
// only when its machine has written down that it has ended, or is declared gone.
// Of a master that dies while it writes, part of what it decided is in force: that
// is looked at when the next one has loaded it.
func (w *World) checkOnce(before snap) {
	for name, c := range before {
		if w.master.state.Chunks[name] == c {
			continue
		}
		for i := range c.Tasks {
			was, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			if was.Machine == "" || !w.oracle.data[was.Data].NeverTwice() || w.over(was.Machine, schema.TaskRef{Task: task, Generation: was.Generation}) {
				continue
			}
			r := w.oracle.record(task)
			switch {
			case r != nil && r.Generation == was.Generation && r.Machine != "":
			case r != nil && w.survived(r.Generation): // what was decided after the snapshot
			case w.isGone(was.Machine) || w.isForgotten(was.Machine):
				w.oracle.written[was.Generation] = w.now
			default:
				w.violate("task %s generation %d on %s is given up, which has not said that it ended: it must never run twice", task, was.Generation, was.Machine)
			}
		}
	}
}

// over reports whether a generation never runs again: its machine has written
// down that it has ended, or that it is to stop before it was ever started; or it knows
// so, and its disk refuses that. Nothing is started whose assignment it refuses.
func (w *World) over(machine string, of schema.TaskRef) bool {
	d := &w.named(machine).disk
	if d.find(of.Task, of.Generation) != nil {
		return w.dead(machine, of.Generation)
	}
	return w.restoredBefore(of.Generation) || d.refused[file(of, "assignment.json")] || slices.ContainsFunc([]*schema.View{d.view, d.refusedView}, func(v *schema.View) bool {
		return v != nil && slices.ContainsFunc(v.Assignments, func(a schema.Assignment) bool {
			return a.Generation == of.Generation && a.Stop != nil
		})
	})
}

// tolerated returns how long a machine must have been silent before a task on it
// is rescheduled; false if that never is. A job that is removed goes with the
// last of its tasks: for that one counts the data that it ran.
func (w *World) tolerated(task schema.TaskName, machine string, before snap) (time.Duration, bool) {
	r, j := before.record(task), w.master.state.Jobs[task.JobName]
	switch {
	case w.isForgotten(machine):
		return 0, true
	case w.isGone(machine):
		return silentAfter, true
	case r == nil:
		return time.Minute, true
	}
	digest := r.Data
	if j != nil && j.Admitted != "" {
		digest = j.Admitted
	}
	d := w.oracle.data[digest]
	return d.After(time.Minute), !d.NeverTwice()
}
