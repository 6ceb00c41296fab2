package sim

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// overloads has a machine's prod tasks wait for processors for a while.
func (w *World) overloads(a Action) bool {
	m := w.machine(a)
	if m.agent != nil {
		m.agent.fresh = true
		m.wakeBy(w.now)
	}
	return w.until(&m.overloaded, between(a.N, 5, 60), m.name+" is overloaded")
}

// asks is whom an agent asks to be moved elsewhere while its machine is overloaded:
// nobody while one of them is leaving, since what is left may be enough.
func (w *World) asks(m *machine) *schema.Overload {
	if !w.now.Before(m.overloaded) {
		return nil
	}
	m.agent.fresh = true // until it is over
	o := &schema.Overload{Since: serialized(m.overloaded), Message: "as is simulated"}
	for _, r := range m.alive {
		a := &r.of.assignment
		switch {
		case a.Job.Priority.Prod() || a.Job.Kind == schema.Allocs:
		case r.stop != nil:
			return nil
		case len(o.Relief) < 8:
			o.Relief = append(o.Relief, schema.TaskRef{Task: a.Task, Generation: a.Generation})
		}
	}
	if len(o.Relief) == 0 {
		return nil
	}
	return o
}

// checkRelief: a task is moved off an overloaded machine only when its agent has named
// it, it is not prod, of a system job or suspended, one at a time from a machine, and
// from a twentieth of the machines at once, one at least.
func (w *World) checkRelief(before snap, suspended map[schema.JobName]suspendedJob) {
	leaving, fresh := map[string][]schema.TaskRef{}, map[string]bool{}
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			t, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			if t.Stop == nil || t.Stop.Resource != schema.MachineCPU {
				continue
			}
			leaving[t.Machine] = append(leaving[t.Machine], schema.TaskRef{Task: task, Generation: t.Generation})
			if was := before.record(task); was != nil && was.Generation == t.Generation && was.Stop == nil {
				fresh[t.Machine] = true
				w.checkMoved(task, t, suspended)
			}
		}
	}
	asking := 0
	for machine, refs := range leaving {
		named := w.relief(machine)
		if w.responds(machine) && slices.ContainsFunc(refs, func(r schema.TaskRef) bool { return slices.Contains(named, r) }) {
			asking++
		}
		unnamed := func(r schema.TaskRef) bool { return !slices.Contains(named, r) } // what was named before may have been enough
		if len(refs) > 1 && fresh[machine] && !slices.ContainsFunc(refs, unnamed) {
			w.violate("%d tasks are moved at once off %s, which is overloaded: one at a time may be", len(refs), machine)
		}
	}
	if all := len(w.master.state.Machines); len(fresh) > 0 && asking > max(1, all/20) {
		w.violate("tasks are moved off %d overloaded machines at once, of %d: a twentieth may be, or one", asking, all)
	}
}

// relief is what the agent of a machine has asked for in its newest report.
func (w *World) relief(machine string) []schema.TaskRef {
	if r := w.master.reported[machine]; r != nil && r.Overload != nil {
		return r.Overload.Relief
	}
	return nil
}

// checkMoved holds one task that is moved off an overloaded machine.
func (w *World) checkMoved(task schema.TaskName, t *schema.TaskRecord, suspended map[schema.JobName]suspendedJob) {
	data := w.master.state.Data[t.Data]
	_, held := suspended[task.JobName]
	if data.Priority.Prod() || data.Kind == schema.System || held {
		w.violate("task %s is moved off %s, which is overloaded: it is at priority %d, of kind %s, suspended: %t", task, t.Machine, data.Priority, data.Kind, held)
	}
	if !slices.Contains(w.relief(t.Machine), schema.TaskRef{Task: task, Generation: t.Generation}) {
		w.violate("task %s is moved off %s, whose agent has not asked for that", task, t.Machine)
	}
}
