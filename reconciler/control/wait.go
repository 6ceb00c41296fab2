package control

import (
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// setJobRight has the record of a job stored without times that a clock wrote down
// which was ahead.
func (s pass) setJobRight(name schema.JobName) {
	was := s.Job(name)
	if was == nil || !lastOf(was).After(s.Now) {
		return
	}
	r := waitsFrom(was, s.Past)
	r.Since = s.Past(r.Since)
	if was.Whole != nil {
		r.Whole = &schema.Whole{Since: s.Past(was.Whole.Since), Of: s.Past(was.Whole.Of)}
	}
	if was.Asked != nil {
		r.Asked = &schema.Asked{Of: s.Past(was.Asked.Of)}
		for _, step := range was.Asked.Steps {
			r.Asked.Steps = append(r.Asked.Steps, schema.AskedStep{Tasks: step.Tasks, Since: s.Past(step.Since)})
		}
	}
	s.SetJob(name, r)
}

// askedSince returns since when the tasks of a job have been wanted, nil if all of them since its data
// changed. Those that wait go on waiting, whatever is changed of them, unless they ask for more of a
// machine than before. was is its record before, nil for none, and is the one that it gets with job.
func (s *admission) askedSince(was, is *schema.JobRecord, job *schema.Job) *schema.Asked {
	if was == nil || was.Admitted == "" || job.Kind == schema.System {
		return nil
	}
	old := s.Data(was.Admitted)
	before, now := old.With(was.Count).Tasks, job.With(is.Count).Tasks
	both := min(before, now)
	var steps []schema.AskedStep
	if !grows(old, job) && s.waits(was.Name, both) {
		for _, step := range append(slices.Clip(was.AskedSteps()), schema.AskedStep{Tasks: both, Since: was.Since}) {
			if n := len(steps); n == 0 || steps[n-1].Tasks < both {
				steps = append(steps, schema.AskedStep{Tasks: min(step.Tasks, both), Since: step.Since})
			}
		}
	}
	if now > before && is.Since.Equal(was.Since) {
		steps = append(steps, schema.AskedStep{Tasks: now, Since: s.Now})
	}
	if !slices.ContainsFunc(steps, func(step schema.AskedStep) bool { return !step.Since.Equal(is.Since) }) {
		return nil
	}
	return &schema.Asked{Steps: steps[max(0, len(steps)-schema.MaxAskedSteps):], Of: is.Since}
}

// waits reports whether one of the first tasks of a job has no place.
func (s *admission) waits(job schema.JobName, tasks int) bool {
	for _, t := range s.Tasks(job) {
		if t.Index < tasks && (t.Machine != "" || t.Done != nil) {
			tasks--
		}
	}
	return tasks > 0
}

// waitsFrom returns a copy of the record of a job with other times from which what
// waits is counted.
func waitsFrom(was *schema.JobRecord, of func(time.Time) time.Time) *schema.JobRecord {
	r := *was
	r.Disrupted = nil
	for _, d := range was.Disrupted {
		d.At = of(d.At)
		r.Disrupted = withSpent(r.Disrupted, d)
	}
	if was.Rollout != nil {
		rollout := *was.Rollout
		rollout.Since, rollout.Progress, rollout.Canary = of(rollout.Since), of(rollout.Progress), of(rollout.Canary)
		r.Rollout = &rollout
	}
	return &r
}

// lastOf returns the last of the times in the record of a job that it counts from.
func lastOf(r *schema.JobRecord) time.Time {
	last := r.Since
	later := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	if r.Whole != nil {
		later(r.Whole.Since)
		later(r.Whole.Of)
	}
	if r.Asked != nil {
		later(r.Asked.Of)
		for _, step := range r.Asked.Steps {
			later(step.Since)
		}
	}
	if n := len(r.Disrupted); n > 0 {
		later(r.Disrupted[n-1].At)
	}
	if r.Rollout != nil {
		later(r.Rollout.Since)
		later(r.Rollout.Progress)
		later(r.Rollout.Canary)
	}
	return last
}
