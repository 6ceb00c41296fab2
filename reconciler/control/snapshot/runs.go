package snapshot

import (
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// runs is how long tasks have run that finished, as far as it was asked for.
type runs struct {
	facts   *facts.Facts
	ofJob   map[schema.JobName]time.Duration
	ofClass map[runClass]time.Duration // of all batch jobs; nil before it is asked for
}

// runClass is the jobs from which it is guessed how long a task runs of a job none of
// whose tasks has finished yet.
type runClass struct {
	user string
	band schema.Band
}

// ends returns until when a task that has a machine is expected to run; zero if that is not
// known. One that has run for longer than was expected is expected to run twice as long.
func (r *runs) ends(task schema.TaskName) time.Time {
	t := r.facts.Task(task)
	if t == nil || t.Machine == "" {
		return time.Time{}
	}
	data := r.facts.Data(t.Data)
	from, lasts := t.At, r.lasts(task.JobName, data)
	if t.Stop != nil {
		from, lasts = t.Stop.At, time.Duration(1+data.Task.GraceSeconds)*time.Second
	}
	if lasts == 0 {
		return time.Time{}
	}
	from = r.facts.Past(from)
	for ran := r.facts.Now.Sub(from); lasts <= ran; {
		lasts *= 2
	}
	return from.Add(lasts)
}

// lasts returns how long a task of a job is expected to run: as long as the longest run of
// those of its tasks that have finished, or else of its user's in its band. 0 if nothing is
// known, as of what does not finish.
func (r *runs) lasts(name schema.JobName, job *schema.Job) time.Duration {
	if job.Kind != schema.Batch {
		return 0
	}
	longest, known := r.ofJob[name]
	if !known {
		longest = r.longestRun(name)
		if r.ofJob == nil {
			r.ofJob = map[schema.JobName]time.Duration{}
		}
		r.ofJob[name] = longest
	}
	if longest > 0 {
		return longest
	}
	if r.ofClass == nil {
		r.ofClass = r.longestRuns()
	}
	return r.ofClass[runClass{name.User, job.Priority.Band()}]
}

// longestRun returns the longest run of the tasks of a job that have finished; 0 if none has.
func (r *runs) longestRun(name schema.JobName) (longest time.Duration) {
	for _, t := range r.facts.Tasks(name) {
		if n := len(t.Causes); t.Done != nil && n > 0 && t.Causes[n-1].Kind == schema.CauseFinished && !t.At.IsZero() {
			longest = max(longest, t.Causes[n-1].At.Sub(t.At))
		}
	}
	return longest
}

// longestRuns returns the longest runs of all classes.
func (r *runs) longestRuns() map[runClass]time.Duration {
	out := map[runClass]time.Duration{}
	for name := range r.facts.Base.Jobs {
		if job := r.facts.Admitted(name); job != nil && job.Kind == schema.Batch {
			class := runClass{name.User, job.Priority.Band()}
			out[class] = max(out[class], r.longestRun(name))
		}
	}
	return out
}
