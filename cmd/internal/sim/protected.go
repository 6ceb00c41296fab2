package sim

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// protectedTasks is how many tasks of each user may not be preempted.
const protectedTasks = 8

// protect has the jobs of a template that were added to a package, from the n-th on, say that their tasks may
// not be preempted, at a third of the priorities that a job has: of an alloc set, or of
// the jobs inside, or of both.
func protect(p *schema.Package, n int, d declared) {
	if d.shift%3 != 1 {
		return
	}
	for i := range p.Objects.AllocSets {
		if len(p.Objects.Jobs) > n && p.Objects.Jobs[n].AllocSet == p.Objects.AllocSets[i].Name && d.shift%2 == 0 {
			p.Objects.AllocSets[i].Preemptible = new(bool)
		}
	}
	for i := n; i < len(p.Objects.Jobs); i++ {
		j := &p.Objects.Jobs[i]
		if j.AllocSet == "" || d.shift/3%2 == 0 {
			j.Preemptible = new(bool)
		}
	}
}

// checkProtected: no task is preempted whose job says that it may not be, by what is admitted, and each job of
// its gang; but one that has its place behind the task that it makes room for.
func (w *World) checkProtected(task, by schema.TaskName, before snap) {
	s := w.master.state
	data := func(name schema.JobName) *schema.Job {
		if r := s.Jobs[name]; r != nil {
			return s.Data[r.Admitted]
		}
		return nil
	}
	is := data(task.JobName)
	if is == nil || !is.NeverPreempted() {
		return
	}
	for name := range s.Jobs {
		if j := data(name); j != nil && j.Gang != "" && j.Gang == is.Gang && j.User == is.User && !j.NeverPreempted() {
			return
		}
	}
	if w.cameBehind(task, by, before) && !is.Gathers() {
		return
	}
	w.violate("task %s may not be preempted, and is preempted for %s", task, by)
}

// cameBehind reports whether a task has its place on a machine that is held for another one since that may
// evict it there: as its record says, which names what goes together as a whole.
func (w *World) cameBehind(task, by schema.TaskName, before snap) bool {
	r, waits := before.record(task), before.record(by)
	if r == nil || r.Behind == "" || waits == nil || waits.Held == nil {
		return false
	}
	switch is := w.master.state.Data[w.master.state.Jobs[by.JobName].Admitted]; {
	case is.Gang != "":
		return r.Behind == "gang "+by.User+"/"+is.Gang
	case is.Together:
		return r.Behind == by.JobName.Short()
	}
	return r.Behind == by.Short() && waits.Held.Machine == r.Machine
}

// withinProtected errs when more tasks of a user may not be preempted than the tenant may have, and more
// than before.
func (p *prefix) withinProtected(user string) error {
	is, was := p.protected(user), p.was.protected(user)
	if is > max(protectedTasks, was) {
		return fmt.Errorf("%d tasks of %s are admitted that may not be preempted, and there may be %d", is, user, protectedTasks)
	}
	return nil
}

// protected counts the tasks of a user's jobs that say that they may not be preempted; one of kind system has one on
// each machine.
func (p *prefix) protected(user string) (n int) {
	for name, r := range p.jobs {
		switch job := p.data[r.Admitted]; {
		case name.User != user || job == nil || !job.NeverPreempted():
		case job.Kind == schema.System:
			n += len(p.base.Machines)
		default:
			n += job.With(r.Count).Tasks
		}
	}
	return n
}
