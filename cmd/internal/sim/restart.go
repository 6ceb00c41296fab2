package sim

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// restarted is a restart as the world knows it.
type restarted struct {
	job schema.JobName
	// ran are the generations that ran when it was asked for.
	ran   map[schema.TaskName]uint64
	after uint64
	was   *restarted // of the same name, which goes on if the store has not taken it
	// unsure is that the store may not have what was asked last: it, or its end.
	unsure bool
}

// restarts asks for a restart of a job that runs, or, when N is even, of one of its
// tasks; or ends one, when N is a multiple of 7.
func (w *World) restarts(a Action) bool {
	if w.master == nil || len(w.master.state.Jobs) == 0 {
		return false
	}
	s := w.master.state
	if a.N%7 == 0 && len(s.Restarts) > 0 {
		names := slices.Sorted(maps.Keys(s.Restarts))
		return w.endRestart(names[modulo(a.N/7, len(names))])
	}
	running := slices.SortedFunc(maps.Keys(s.Jobs), schema.JobName.Compare)
	job := running[modulo(a.Job, len(running))]
	x := restarted{job: job, ran: map[schema.TaskName]uint64{}}
	w.each(job, func(t *schema.TaskRecord) {
		if t.Machine != "" {
			x.ran[job.Task(t.Index)] = t.Generation
		}
	})
	name := job.Short()
	if indices := slices.SortedFunc(maps.Keys(x.ran), schema.TaskName.Compare); a.N%2 == 0 && len(indices) > 0 {
		task := indices[modulo(a.N/2, len(indices))]
		name, x.ran = task.Short(), map[schema.TaskName]uint64{task: x.ran[task]}
	}
	r := schema.RestartRequest{Name: name, Reason: "the simulation says so", By: "somebody"}
	answer, err := w.master.Restart(r, w.clock.read(w.now))
	if err != nil || answer.Now == nil {
		return false
	}
	for i := range answer.Was {
		if old := w.oracle.restarts[answer.Was[i].Name]; old != nil {
			old.unsure = true
		}
	}
	x.after, x.was, x.unsure = answer.Now.After, w.oracle.restarts[name], true
	w.oracle.restarts[name] = &x
	w.asked()
	return true
}

// endRestart cancels a restart: that of a job with those of its tasks.
func (w *World) endRestart(name string) bool {
	answer, err := w.master.CancelRestart(name, "somebody", w.clock.read(w.now))
	if err != nil {
		return false
	}
	for i := range answer.Was {
		if x := w.oracle.restarts[answer.Was[i].Name]; x != nil {
			x.unsure = true
		}
	}
	w.asked()
	return true
}

// cancelFailedRestarts cancels those that have failed.
func (w *World) cancelFailedRestarts() {
	for w.master != nil {
		name := ""
		for _, n := range slices.Sorted(maps.Keys(w.master.state.Restarts)) {
			if w.master.state.Restarts[n].Failed != "" {
				name = n
			}
		}
		if name == "" || !w.endRestart(name) {
			return
		}
	}
}

// checkRestarts: what a step stops for a restart ran when that was asked for, so
// each task is restarted once; and when a restart is over, nothing of that runs any
// more which is wanted. before is what was stored when the master decided.
func (w *World) checkRestarts(before snap) {
	s := w.master.state
	for name, x := range w.oracle.restarts {
		if is := s.Restarts[name]; is != nil && is.After != x.after && x.was != nil {
			w.oracle.restarts[name] = x.was
		}
	}
	for name, c := range s.Chunks {
		for i := range c.Tasks {
			t, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			if t.Stop == nil || t.Stop.Kind != schema.CauseRestart {
				continue
			}
			if was := before.record(task); was != nil && was.Generation == t.Generation && was.Stop == nil && !w.wasAsked(task, t.Generation) {
				w.violate("task %s generation %d is stopped for a restart that was not asked of it", task, t.Generation)
			}
		}
	}
	for name, x := range w.oracle.restarts {
		switch {
		case s.Restarts[name] != nil:
			x.unsure, x.was = false, nil
			continue
		case !x.unsure:
			w.checkRestarted(name, x)
		}
		delete(w.oracle.restarts, name)
	}
}

// wasAsked reports whether a restart goes on that is to stop a generation.
func (w *World) wasAsked(task schema.TaskName, generation uint64) bool {
	if w.master.state.Restored != nil {
		return true // what was asked for is as old as the snapshot
	}
	for name, x := range w.oracle.restarts {
		r := w.master.state.Restarts[name]
		if r != nil && r.Failed == "" && x.ran[task] == generation {
			return true
		}
	}
	return false
}

// checkRestarted holds the end of a restart against what it was asked for.
func (w *World) checkRestarted(name string, x *restarted) {
	r := w.master.state.Jobs[x.job]
	if r == nil || r.Admitted == "" {
		return
	}
	want := w.master.state.Data[r.Admitted]
	w.each(x.job, func(t *schema.TaskRecord) {
		task := x.job.Task(t.Index)
		if t.Machine != "" && t.Stop == nil && x.ran[task] == t.Generation && w.wants(want, task) {
			w.violate("the restart of %s is over, and task %s runs on with generation %d from before", name, task, t.Generation)
		}
	})
}
