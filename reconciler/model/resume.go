package model

import "time"

// stallThreshold is how late a master may be for its own Wake before it is taken that
// it did not listen.
const stallThreshold = 5 * time.Second

// OnResume says that the master is about to step at now, and that the step before wanted
// this one at wake at the latest (Output.Wake). One that is late was stopped, or waited for
// its store. It has not taken the reports of machines meanwhile: none of them counts as
// lost for that, and each gets new tasks when it has reported again.
//
// It returns by how much the clock was set forward since the step before, 0 if it
// was not, for SetForward.
func (o *Observed) OnResume(wake, now time.Time) time.Duration {
	jump := clockJump(o.lastStep, now)
	o.lastStep = now
	if wake.IsZero() || now.Sub(wake) <= stallThreshold {
		return jump
	}
	o.since, o.waitedBefore = now, o.waited
	quiet := now.Add(-SilentAfter)
	for _, h := range o.machines {
		if h.at.Before(quiet) {
			h.at = quiet
		}
	}
	return jump
}

// waitedFrom is how long a write to the store must take for that to matter.
const waitedFrom = time.Second

// Waited says that the master has waited for its store from began to now, and has taken no
// reports meanwhile: no machine counts as lost for that time. Whether it is up then is not
// known.
func (o *Observed) Waited(began, now time.Time) {
	if waited := now.Sub(began); waited >= waitedFrom {
		o.waited += waited
	}
}

// minJump is by how much a clock must have been set forward for that to matter.
const minJump = time.Second

// clockJump returns by how much a clock was set forward between two readings, 0 if it
// was not: by how much more the time of day went on than the monotonic reading.
func clockJump(was, now time.Time) time.Duration {
	if jump := now.Round(0).Sub(was.Round(0)) - now.Sub(was); jump >= minJump {
		return jump
	}
	return 0
}
