package nodeagent

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/schema"
)

// leastUnanswered is how long at least checks must have been void for a task that was
// healthy to be so no longer: an upgrade of the agent takes less.
const leastUnanswered = time.Minute

// asksWithin is within what time from the start of an incarnation its first check is made by an agent
// that has started it, on a machine that is busy, too.
const asksWithin = 10 * time.Second

// Check is the health check of an incarnation, which shall go on: after
// Probe.Wait it is asked, and Probe.Next of the Result is the next Probe.
type Check struct {
	Task        schema.TaskName
	Generation  uint64
	Incarnation int
	Health      schema.Health // with timings
	// Assignment is what the task runs: its ports and variables.
	Assignment schema.Assignment
	StartedAt  time.Time // of the incarnation
	// Probe is what its checks have come to so far.
	Probe Probe
}

// ErrNotRun is in the error of a command beside a task, such as a health check,
// that was not carried out for a reason that is not the task's: its keeper's program
// is missing, the machine has no process to spare. It says nothing of the task.
var ErrNotRun = errors.New("could not be run")

// Result is what one check has seen.
type Result struct {
	At time.Time // when it began
	OK bool
	// Message says what was asked and seen: "GET http://…: connection refused".
	Message string
	// Void says that it is no evidence about the task: the check could not be run, or
	// the agent itself did not run in time to see the answer. It counts neither way.
	Void bool
}

// Probe is what the checks of one incarnation have come to. The zero Probe is
// that of one which was never asked.
type Probe struct {
	State schema.HealthState
	// Answered says that a check has passed, so that failures count.
	Answered bool
	// Asked counts all checks, Passed and Failed those in a row that count.
	Asked, Passed, Failed int
	// UnansweredSince is when the first of the checks began that were made since the
	// last that counts, and were void; zero for none.
	UnansweredSince time.Time `json:"UntoldSince"` // as it was called in files of earlier releases
	// Late says that the checks did not begin with the incarnation: they are of an agent that has
	// adopted it, or of a check that came later.
	Late bool
	// HealthyAfter is the time from the start of the incarnation to the check by which it was
	// healthy first; 0 if it was not yet, or if that is not known.
	HealthyAfter time.Duration
	// HealthyBy is the digest of that check, with its timings: of another one HealthyAfter says
	// nothing.
	HealthyBy schema.Digest
	// Message is of the last check that did not pass, or could not be run; "" after
	// one that passed.
	Message string
}

// Known returns the Probe of an incarnation whose state an earlier agent has
// written down: it goes on from there, and must fail again to be unhealthy.
func Known(state schema.HealthState, message string) Probe {
	return Probe{State: state, Answered: state == schema.Healthy, Message: message}
}

// Next returns p after one more check under h of a task that runs since
// startedAt.
func (p Probe) Next(h *schema.Health, startedAt time.Time, r Result) Probe {
	age := r.At.Sub(startedAt)
	if p.Asked == 0 && (age < 0 || age > asksWithin) {
		p.Late = true
	}
	p.Asked++
	switch {
	case r.Void:
		if p.State != schema.Unhealthy { // keep why it is
			p.Message = r.Message
		}
		if p.UnansweredSince.IsZero() || r.At.Before(p.UnansweredSince) { // a clock that was set back
			p.UnansweredSince = r.At
		}
		if p.State == schema.Healthy && r.At.Sub(p.UnansweredSince) >= max(leastUnanswered, time.Duration(h.Failures)*h.Interval()) {
			p.State, p.Passed = schema.HealthUnknown, 0
		}
	case r.OK:
		p.Answered, p.Failed, p.Message, p.UnansweredSince = true, 0, "", time.Time{}
		p.Passed = min(p.Passed+1, h.Successes)
		if p.Passed >= h.Successes {
			if p.State != schema.Healthy && p.HealthyAfter == 0 && !p.Late {
				p.HealthyAfter, p.HealthyBy = max(0, age), schema.DigestOf(h)
			}
			p.State = schema.Healthy
		}
	default:
		p.Passed, p.Message, p.UnansweredSince = 0, r.Message, time.Time{}
		// A clock that was set back since ends the start period: waiting for
		// it to catch up could take for ever.
		if p.Answered || age < 0 || age >= h.Start() {
			p.Failed = min(p.Failed+1, h.Failures)
		}
		if p.Failed >= h.Failures {
			p.State = schema.Unhealthy
		}
	}
	if p.State == "" {
		p.State = schema.HealthUnknown
	}
	return p
}

// Wait returns the time from the start of the last check, or of the task, to
// that of the next.
func (p Probe) Wait(h *schema.Health) time.Duration {
	if p.Answered {
		return h.Interval()
	}
	return h.Wait(p.Asked)
}

// check returns the health check of a running incarnation, nil if it has none.
func (it item) check(c *Incarnation) *Check {
	health := it.job().Task.Health
	if c.PID == 0 || health == nil || c.Step > 0 {
		return nil
	}
	if _, ok := it.held.Assignment.Ports.Get(health.Port()); health.Port() != "" && !ok {
		return nil // newer version names a port that this process was not given
	}
	return &Check{
		Task: it.task, Generation: it.generation, Incarnation: c.Number, Health: health.Timed(),
		Assignment: it.held.Assignment, StartedAt: c.StartedAt, Probe: c.Probe,
	}
}

// unhealthy says how a running incarnation fails its check, "" if it does not.
func (it item) unhealthy(c *Incarnation) string {
	if it.job().Task.Health == nil || c.PID == 0 || c.Probe.State != schema.Unhealthy {
		return ""
	}
	if n := c.Probe.Failed; n > 1 {
		return fmt.Sprintf("%s, %s", c.Probe.Message, schema.Times(n))
	}
	return c.Probe.Message
}

// reportHealth reports c's health: nothing without a check.
func (it item) reportHealth(c *Incarnation, s *schema.TaskStatus) {
	if it.job().Task.Health == nil {
		return
	}
	s.Health, s.HealthMessage, s.Unchecked = cmp.Or(c.Probe.State, schema.HealthUnknown), c.Probe.Message, !c.Probe.UnansweredSince.IsZero()
	if timed := it.job().Task.Health.Timed(); c.Probe.HealthyAfter > 0 && c.Probe.HealthyBy == schema.DigestOf(&timed) {
		s.HealthyMillis = c.Probe.HealthyAfter.Milliseconds()
	}
}
