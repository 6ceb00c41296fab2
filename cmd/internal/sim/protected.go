package sim

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// protectedTasks is how many tasks of each user may not be preempted.
const protectedTasks = 8

// protect has the jobs of a template that were added to a package, from the n-th on, say that their tasks may
// not be preempted, at a third of the priorities that a job has: of jobs that share a gang one may say so.
// Of an alloc set, or of the jobs inside, or of both.
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
		if p.Objects.Jobs[i].AllocSet == "" || d.shift/3%2 == 0 {
			p.Objects.Jobs[i].Preemptible = new(bool)
		}
	}
}

// checkProtected: no task is preempted whose job says that it may not be, or a job of its gang does, by what
// is admitted.
func (w *World) checkProtected(task, by schema.TaskName) {
	s := w.master.state
	j := s.Jobs[task.JobName]
	if j == nil || s.Data[j.Admitted] == nil {
		return
	}
	admitted := map[schema.JobName]*schema.Job{}
	for name, r := range s.Jobs {
		admitted[name] = s.Data[r.Admitted]
	}
	if isProtected(admitted[task.JobName], admitted) {
		w.violate("task %s may not be preempted, and is preempted for %s", task, by)
	}
}

// isProtected reports whether no task of a job may be preempted, where jobs are admitted; nil is one that is not.
func isProtected(job *schema.Job, admitted map[schema.JobName]*schema.Job) bool {
	if job.NeverPreempted() || job.Gang == "" {
		return job.NeverPreempted()
	}
	for _, other := range admitted {
		if other != nil && other.User == job.User && other.Gang == job.Gang && other.NeverPreempted() {
			return true
		}
	}
	return false
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

// protected counts the tasks of a user's jobs that may not be preempted.
func (p *prefix) protected(user string) (n int) {
	admitted := map[schema.JobName]*schema.Job{}
	for name, r := range p.jobs {
		admitted[name] = p.data[r.Admitted]
	}
	for name, job := range admitted {
		if name.User == user && job != nil && job.Kind != schema.System && isProtected(job, admitted) {
			n += job.With(p.jobs[name].Count).Tasks
		}
	}
	return n
}
