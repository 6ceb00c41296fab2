package sim

import "github.com/musterhq/muster/schema"

// checkEnds: what a machine says has ended, it has written down, if there is
// anything of it and its disk does not refuse that: the master gives its place to
// others on that word.
func (w *World) checkEnds(m *machine, r *schema.Report) {
	for i := range r.Tasks {
		t := &r.Tasks[i]
		if t.End == nil {
			continue
		}
		g := m.disk.find(t.Task, t.Generation)
		if g == nil || g.end != nil {
			w.oracle.closed[t.Generation] = nil
			continue
		}
		// An agent that comes after does not know of it.
		w.oracle.closed[t.Generation] = m.agent
		if !m.disk.refusesEnd(g) {
			w.violate("%s says that task %s generation %d has ended (%s), and has not written down that it did", m.name, t.Task, t.Generation, t.End)
		}
	}
}

// checkDone: what is stored as done has finished: its last run exited with 0, and
// nobody had asked it to stop.
func (w *World) checkDone() {
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			r, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			if r.Done != nil && w.oracle.finished[task] != r.Generation && !w.oracle.ended[r.Generation] {
				w.violate("task %s is stored as done by generation %d, which has not finished", task, r.Generation)
			}
		}
	}
}
