package sim

// checkDone: what is stored as done has finished: its last run exited with 0, and
// nobody had told it to.
func (w *World) checkDone() {
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			r, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			if r.Done != nil && w.oracle.finished[task] != r.Generation {
				w.violate("task %s is stored as done by generation %d, which has not finished", task, r.Generation)
			}
		}
	}
}
