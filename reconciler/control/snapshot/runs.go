package snapshot

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// runs is how long tasks have run that finished.
type runs struct {
	facts *facts.Facts
	kept  *Kept
	ready bool // what is kept is as the facts are
}

// keptRuns are those that one step leaves to the next one.
type keptRuns struct {
	written int              // see model.State.WrittenSince
	drafted []schema.JobName // as they were when it was looked at them, which need not be stored
	jobs    map[schema.JobName]jobRuns
	classes map[runClass]*classRuns
	looks   int // at jobs, for tests
}

// jobRuns is the longest run of the tasks of a job that have finished.
type jobRuns struct {
	longest time.Duration
	class   *runClass // of a batch job, nil of another one
}

// classRuns are the longest runs of the jobs of a class that have any.
type classRuns struct {
	jobs    map[schema.JobName]time.Duration
	longest time.Duration
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
	k := r.update()
	if longest := k.jobs[name].longest; longest > 0 {
		return longest
	}
	if class := k.classes[runClass{name.User, job.Priority.Band()}]; class != nil {
		return class.longest
	}
	return 0
}

// update takes over what has become of jobs since the step before, when it is asked first.
func (r *runs) update() *keptRuns {
	k := &r.kept.runs
	if r.ready {
		return k
	}
	r.ready = true
	jobs, next, ok := r.facts.Base.WrittenSince(k.written)
	if !ok || k.jobs == nil {
		*k = keptRuns{jobs: map[schema.JobName]jobRuns{}, classes: map[runClass]*classRuns{}, looks: k.looks}
		jobs = r.facts.Base.JobsWithChunks()
	}
	changed := r.facts.ChangedJobs()
	for _, chunk := range r.facts.ChangedChunks() {
		changed = append(changed, chunk.Job)
	}
	names := slices.SortedFunc(slices.Values(slices.Concat(k.drafted, changed, jobs)), schema.JobName.Compare)
	for _, name := range slices.Compact(names) {
		k.looks++
		k.set(name, r.longestRun(name), r.facts.Admitted(name))
	}
	k.written, k.drafted = next, changed
	return k
}

// set takes down the longest run of a job of some data, nil if it is not admitted; 0 for none.
func (k *keptRuns) set(name schema.JobName, longest time.Duration, job *schema.Job) {
	if was := k.jobs[name]; was.class != nil {
		c := k.classes[*was.class]
		if delete(c.jobs, name); len(c.jobs) == 0 {
			delete(k.classes, *was.class)
		} else if was.longest == c.longest {
			c.longest = slices.Max(slices.Collect(maps.Values(c.jobs)))
		}
	}
	delete(k.jobs, name)
	if longest == 0 {
		return
	}
	runs := jobRuns{longest: longest}
	if job != nil && job.Kind == schema.Batch {
		runs.class = &runClass{name.User, job.Priority.Band()}
		c := k.classes[*runs.class]
		if c == nil {
			c = &classRuns{jobs: map[schema.JobName]time.Duration{}}
			k.classes[*runs.class] = c
		}
		c.jobs[name], c.longest = longest, max(c.longest, longest)
	}
	k.jobs[name] = runs
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
