package reconciler

import (
	"maps"
	"time"

	"github.com/musterhq/muster/schema"
)

// due is the earliest of some times, in two parts that cannot be compared once the
// clock was set: times since something that this master saw, which have a monotonic
// reading, and times of day, as they are stored. Either is zero if there is none.
type due struct {
	timer, day time.Time
}

func (d due) with(t time.Time) due {
	part := &d.timer
	if t == t.Round(0) { //nolint:revive,staticcheck // all but the monotonic reading is the same
		part = &d.day
	}
	if part.IsZero() || t.Before(*part) {
		*part = t
	}
	return d
}

// ahead reports whether a wait that ends at until, and was at most longest when it
// began, still goes on at now. When much more is left than that, the clock was set
// back since, and to wait until it has caught up could take for ever: the wait is
// over. A small correction makes it a little longer.
func ahead(now, until time.Time, longest time.Duration) bool {
	left := until.Sub(now)
	return left > 0 && left <= 2*longest
}

// waits is ahead of a stored wait, and has the step come back when it is over.
func (s *step) waits(until time.Time, longest time.Duration) bool {
	if !ahead(s.now, until, longest) {
		return false
	}
	s.wake(until)
	return true
}

// setRight returns the record of a pending task without the waits that are over
// since the clock was set back, and has them stored so: as time passes, less is
// left of them, and they would begin again.
func (s *step) setRight(job schema.JobName, t schema.TaskRecord) schema.TaskRecord {
	changed := false
	if t.NotBefore.Sub(s.now) > 2*retryCap {
		t.NotBefore, changed = time.Time{}, true
	}
	tooLong := func(_ string, until time.Time) bool { return until.Sub(s.now) > 2*avoidFor }
	avoid := maps.Clone(t.Avoid)
	if maps.DeleteFunc(avoid, tooLong); len(avoid) < len(t.Avoid) {
		t.Avoid, changed = avoid, true
	}
	if changed {
		s.set(job, t)
	}
	return t
}
