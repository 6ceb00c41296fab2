package control

import (
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
		rollout.Since, rollout.Progress, rollout.Canary, rollout.CanaryStopped = of(rollout.Since), of(rollout.Progress), of(rollout.Canary), of(rollout.CanaryStopped)
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
		later(r.Rollout.CanaryStopped)
	}
	return last
}
