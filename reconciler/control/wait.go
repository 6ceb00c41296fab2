package control

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// deadline is the earliest of some times, in two parts that cannot be compared once the
// clock was set: times since something that this master saw, which have a monotonic
// reading, and times of day, as they are stored. Either is zero if there is none.
type deadline struct {
	monotonic, wall time.Time
}

func (d deadline) with(t time.Time) deadline {
	part := &d.monotonic
	if t == t.Round(0) { //nolint:revive,staticcheck // all but the monotonic reading is the same
		part = &d.wall
	}
	if part.IsZero() || t.Before(*part) {
		*part = t
	}
	return d
}

// Ahead reports whether a wait that ends at until, and was at most longest when it
// began, still goes on at now. When much more is left than that, the clock was set
// back since, and to wait until it has caught up could take for ever: the wait is
// over. A small correction makes it a little longer.
func Ahead(now, until time.Time, longest time.Duration) bool {
	left := until.Sub(now)
	return left > 0 && left <= 2*longest
}

// waits is ahead of a stored wait, and has the step come back when it is over.
func (s *step) waits(until time.Time, longest time.Duration) bool {
	if !Ahead(s.now, until, longest) {
		return false
	}
	s.wake(until)
	return true
}

// past returns when something began that has: at t, or now if a clock that was ahead
// wrote t down. What is counted from there begins anew, once.
func (s *step) past(t time.Time) time.Time {
	if t.After(s.now) {
		return s.now
	}
	return t
}

// setJobRight has the record of a job stored without times that a clock wrote down
// which was ahead.
func (s *step) setJobRight(name schema.JobName) {
	was := s.job(name)
	if was == nil || !lastOf(was).After(s.now) {
		return
	}
	r := waitsFrom(was, s.past)
	r.Since = s.past(r.Since)
	s.setJob(name, r)
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

// setRight returns the record of a pending task without the waits that are over
// since the clock was set back, and has them stored so: as time passes, less is
// left of them, and they would begin again.
func (s *step) setRight(job schema.JobName, t schema.TaskRecord) schema.TaskRecord {
	changed := false
	if t.NotBefore.Sub(s.now) > 2*RetryCap {
		t.NotBefore, changed = time.Time{}, true
	}
	tooLong := func(_ string, until time.Time) bool { return until.Sub(s.now) > 2*AvoidFor }
	avoid := maps.Clone(t.Avoid)
	if maps.DeleteFunc(avoid, tooLong); len(avoid) < len(t.Avoid) {
		t.Avoid, changed = avoid, true
	}
	if n := len(t.Causes); n > 0 && t.Causes[n-1].At.After(s.now) { // what it waits for is counted from there
		t.Causes = slices.Clone(t.Causes)
		t.Causes[n-1].At, changed = s.now, true
	}
	if changed {
		s.set(job, t)
	}
	return t
}
