package status

import (
	"github.com/musterhq/muster/schema"
)

// MakesWay is a task that may be preempted where it is for one that its priority, or what its job says,
// does not let preempt it otherwise: it has its place on condition of that.
type MakesWay struct {
	Task string `json:"task"`
	For  string `json:"for"` // a task that waits, for which the machine is held
}

// addBehind adds a task that has its place on a machine which was held for another one, see
// schema.TaskRecord.Behind, if that one still waits for it, and could not preempt it otherwise.
func (e *Explanation) addBehind(in DescribeInput, task schema.TaskName, t *schema.TaskRecord, job *schema.Job) {
	if t.Behind == "" || t.Machine == "" || job == nil || job.Gathers() {
		return
	}
	for name, c := range in.State.Chunks {
		for i := range c.Tasks {
			waits, is := &c.Tasks[i], in.State.Runs(name.Job)
			if is == nil || waits.Machine != "" || waits.Held == nil || waits.Held.Machine != t.Machine || t.At.Before(waits.Held.Since) {
				continue
			}
			holder := name.Job.Task(waits.Index)
			if holds(holder, is) != t.Behind || is.Priority < job.Priority || is.Priority < job.Priority.PreemptsBelow() || is.Priority.Preempts(job.Priority) && !job.NeverPreempted() {
				continue
			}
			if n := len(e.Behind); n > 0 && e.Behind[n-1].Task == task.Short() { // of those that go together, the first
				e.Behind[n-1].For = min(e.Behind[n-1].For, holder.Short())
				continue
			}
			e.Behind = append(e.Behind, MakesWay{task.Short(), holder.Short()})
		}
	}
}

// holds names what a machine is held for where it is held for a task, as records do.
func holds(task schema.TaskName, job *schema.Job) string {
	switch {
	case job.Gang != "":
		return "gang " + job.User + "/" + job.Gang
	case job.Together:
		return task.JobName.Short()
	}
	return task.Short()
}
