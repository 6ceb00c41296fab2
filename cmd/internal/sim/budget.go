package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// chosen are the causes for which muster stops a task though nobody asked for
// it: any but these.
func chosen(c *schema.Cause) bool {
	switch c.Kind {
	case schema.CauseRemoved, schema.CauseScaledDown, schema.CausePreempted, schema.CauseAllocGone, schema.CauseGang:
		return false
	}
	return true
}

// checkBudget: whenever the master has stopped a task by its own choice that
// worked until then, no more tasks of its job are down than may be, and no more
// were stopped so within an hour. What a drain stops whatever budgets say is no more
// than they allow, but counts for what comes later. before is what was stored when it
// decided, and now what its clock said.
func (w *World) checkBudget(before snap, now time.Time) {
	s, drains := w.master.state, w.drains()
	stopped, free := map[schema.JobName][]int{}, map[schema.TaskName]bool{}
	for name, c := range s.Chunks {
		if before[name] == c {
			continue
		}
		for i := range c.Tasks {
			r := &c.Tasks[i]
			was := before.record(name.Job.Task(r.Index))
			if r.Stop == nil || !chosen(r.Stop) || was == nil || was.Stop != nil || was.Generation != r.Generation || !w.works(was) {
				continue
			}
			if w.unbound(r, drains, now) {
				free[name.Job.Task(r.Index)] = true
				continue
			}
			stopped[name.Job] = append(stopped[name.Job], r.Index)
		}
	}
	for _, job := range slices.SortedFunc(maps.Keys(stopped), schema.JobName.Compare) {
		j := s.Jobs[job]
		if j == nil || s.Data[j.Admitted] == nil {
			continue
		}
		want, most := s.Data[j.Admitted], s.Data[j.Admitted].Update.MaxParallel
		if d := want.Disruption; d != nil && d.MaxDown > 0 {
			most = d.MaxDown
		}
		if down := slices.DeleteFunc(w.down(job, want, before), func(i int) bool { return free[job.Task(i)] }); len(down) > max(most, 1) {
			w.violate("tasks %v of %s were stopped, and tasks %v of the job are down: at most %d may be", stopped[job], job, down, most)
		}
		w.checkHour(job, want, len(stopped[job]))
	}
	for task := range free {
		if j := s.Jobs[task.JobName]; j != nil && countsByHour(s.Data[j.Admitted]) {
			w.oracle.stops[task.JobName] = append(w.oracle.stops[task.JobName], w.now)
		}
	}
}

// checkHour counts the stops of a job within an hour, by the true time, of those
// since which each master has seen how its clock was set.
func (w *World) checkHour(job schema.JobName, want *schema.Job, stopped int) {
	if !countsByHour(want) {
		delete(w.oracle.stops, job) // nobody counts them
		return
	}
	var stops []time.Time
	for _, at := range w.oracle.stops[job] {
		if w.now.Sub(at) < time.Hour && w.oracle.unseen.at.Before(at) {
			stops = append(stops, at)
		}
	}
	for range stopped {
		stops = append(stops, w.now)
	}
	if w.oracle.stops[job] = stops; len(stops) > want.Disruption.PerHour {
		w.violate("%d tasks of %s were stopped within an hour: at most %d may be", len(stops), job, want.Disruption.PerHour)
	}
}

// countsByHour reports whether a job's data, nil of none, has a budget for the hour.
func countsByHour(want *schema.Job) bool {
	return want != nil && want.Disruption != nil && want.Disruption.PerHour > 0
}

// down returns the indices of the tasks of a job that it shall have, has had
// before, and that do not work now. One that has been without a machine for a
// minute, and not for an update, does not count where no budget is declared: it
// may be waiting for the room that the rollout makes.
func (w *World) down(job schema.JobName, want *schema.Job, before snap) []int {
	var down []int
	for name, c := range w.master.state.Chunks {
		if name.Job != job {
			continue
		}
		for i := range c.Tasks {
			r := &c.Tasks[i]
			task := job.Task(r.Index)
			was := before.record(task)
			_, cordoned := w.oracle.cordoned[r.On]
			switch {
			case was == nil || was.Generation == 0 || was.Done != nil || r.Done != nil:
			case !w.wants(want, task) || r.Machine == "" && r.On != "" && cordoned:
			case want.Disruption == nil && w.excused(task) || w.works(r):
			default:
				down = append(down, r.Index)
			}
		}
	}
	slices.Sort(down)
	return down
}

// excused reports whether a task has been without a machine for a minute. Its last
// cause has the time by the clock of the master's host, so it goes by that: what it
// says is still to come was before the clock was set back.
func (w *World) excused(task schema.TaskName) bool {
	r := w.oracle.record(task)
	if r == nil || r.Machine != "" || len(r.Causes) == 0 {
		return false
	}
	if w.now.Sub(w.oracle.jumped) < time.Minute {
		return true // by the clock as it was set, the minute may be over
	}
	last, now := r.Causes[len(r.Causes)-1], w.clock.read(w.now)
	return last.Kind != schema.CauseUpdate && last.Kind != schema.CauseRestart && (last.At.After(now) || !now.Before(last.At.Add(time.Minute)))
}

// checkMoves: no more running tasks are moved within an hour, to make the cell better, than
// the cell says; by the true time, of those since which each master has seen how its clock
// was set. Those that go into the alloc that they belong in are not among them. That none
// takes a job below its budget is checkBudget's.
func (w *World) checkMoves(before snap, now time.Time) {
	s, list := w.master.state, w.movesSince(before)
	for i := range list {
		w.checkMove(&list[i], list, now)
	}
	moves := len(list)
	if moves == 0 {
		return
	}
	w.oracle.moves = slices.DeleteFunc(w.oracle.moves, func(at time.Time) bool { return w.now.Sub(at) >= time.Hour || !w.oracle.unseen.at.Before(at) })
	for range moves {
		w.oracle.moves = append(w.oracle.moves, w.now)
	}
	most := schema.DefaultMovesPerHour
	for _, digest := range s.Head.Packages {
		for i := range s.Packages[digest].Objects.Cells {
			most = s.Packages[digest].Objects.Cells[i].Moves().MovesPerHour
		}
	}
	if n := len(w.oracle.moves); n > most {
		w.violate("%d tasks were moved within an hour: at most %d may be", n, most)
	}
}
