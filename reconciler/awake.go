package reconciler

import "time"

// deafAfter is how late a master may be for its own Wake before it is taken that
// it did not listen.
const deafAfter = 5 * time.Second

// Awake says that the master is about to step at now, and that the step before
// wanted this one at wake at the latest (Output.Wake). One that is late was
// stopped, or waited for its store. What machines said meanwhile it has not heard,
// and that is no fault of theirs: none is given up for it, and each gets new
// tasks when it has spoken again.
func (o *Observed) Awake(wake, now time.Time) {
	if wake.IsZero() || now.Sub(wake) <= deafAfter {
		return
	}
	o.since = now
	quiet := now.Add(-silentAfter)
	for _, h := range o.machines {
		if h.at.Before(quiet) {
			h.at = quiet
		}
	}
}
