package reconciler

import "time"

// ahead reports whether a wait that ends at until, and was at most longest when it
// began, still goes on at now. When more is left than that, the clock was set
// back since, and to wait until it has caught up could take for ever: the wait is
// over.
func ahead(now, until time.Time, longest time.Duration) bool {
	left := until.Sub(now)
	return left > 0 && left <= longest
}

// waits is ahead of a stored wait, and has the step come back when it is over.
func (s *step) waits(until time.Time, longest time.Duration) bool {
	if !ahead(s.now, until, longest) {
		return false
	}
	s.wake(until)
	return true
}
