package control

import (
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// timers are when what is to be looked at again if nothing happens: the cell, and each
// job. The controllers book there what an answer of Facts, on which they have acted,
// holds until.
type timers struct {
	now  time.Time
	wake time.Time // of the cell, zero if never; it has a monotonic reading if now has one
	jobs map[schema.JobName]facts.Until
}

func newTimers(now time.Time) *timers {
	return &timers{now: now, jobs: map[schema.JobName]facts.Until{}}
}

// book has a job looked at again, in the step that comes then.
func (t *timers) book(job schema.JobName, u facts.Until) {
	t.jobs[job] = t.jobs[job].Or(u)
	t.bookCell(u)
}

// bookCell has a step come that looks at what is looked at in each.
func (t *timers) bookCell(u facts.Until) {
	for _, at := range []time.Time{u.Monotonic, u.Wall} {
		if !at.After(t.now) {
			continue
		}
		at = t.now.Add(at.Sub(t.now)) // so that the two kinds can be compared
		if t.wake.IsZero() || at.Before(t.wake) {
			t.wake = at
		}
	}
}

// another has another step follow this one, for what has changed too late to be acted on
// in this one.
func (t *timers) another() {
	t.bookCell(facts.Clock{Now: t.now}.In(time.Millisecond))
}
