package nodeagent

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// Held is a generation of a task that the machine has on its disk.
type Held struct {
	// Assignment is as it was written before the first start.
	Assignment schema.Assignment
	// Incarnations are the starts within the generation that are still on
	// disk, by rising Number. Only the last can be alive.
	Incarnations []Incarnation
	// Refused says why the last start was not even tried or did not work
	// (CausePortInUse, CauseStartFailed, CauseOutOfResources where the machine's disk
	// refuses it). It is in memory until Decide has
	// it recorded as End.
	Refused *schema.Cause
	// Throttle bounds its CPU for now, in thousandths of a core; 0 does not.
	// See Throttle.Next.
	Throttle int64
	// IOBound bounds what it reads and writes for now, in bytes a second; 0 does
	// not. See IOThrottle.Next.
	IOBound int64
	// End is on disk, if that takes it: nothing of the generation runs, or ever will.
	End *schema.Cause
	// Clearing says that its work directory is being removed.
	Clearing bool
	// Bytes is what the directory of one that has ended takes of the disk; 0 if
	// that is not measured yet.
	Bytes int64
}

// Process is what the machine says of an incarnation: whoever runs it fills it in, whole,
// and the agent takes it as it is.
type Process struct {
	// Step says which of the task's Before it is, from 1; 0 is the task itself. Attempt is that of
	// Incarnation; 0 if it was not noted.
	Step      int
	Attempt   int
	Boot      string       // the boot id of the machine under which it was started
	PID       int          // of the task; 0 while it starts, and of an alloc
	StartedAt time.Time    // of the task; zero while it starts
	Exit      *schema.Exit // nil while it is alive
	// EndedItself says that it had ended before any signal of the agent's reached it.
	EndedItself bool
	// Terminated says that its keeper was sent SIGTERM, by an agent or by whoever shut the
	// machine down.
	Terminated bool
	// Unseen says that it ended because its keeper was killed.
	Unseen bool
	Note   string // how it is held, see TaskStatus.Note
	// Limited says that limits can be set on it: there are cgroups.
	Limited bool
	// Limits are those that are in force; zero if that is not known.
	Limits TaskLimits
	// Given is what it was started with.
	Given Given
}

// Incarnation is one start of a generation.
type Incarnation struct {
	Number int
	Process
	// Busy means that its start is in flight in this agent: nothing can be
	// done to it until that has come to an end.
	Busy bool
	// Stop says that the agent meant to end it, and why; it is on disk before the
	// signal is sent, if that takes it.
	Stop *schema.Cause
	// TermAt and KilledAt are when this agent last sent SIGTERM and SIGKILL;
	// an agent that was restarted has sent neither.
	TermAt, KilledAt time.Time
	// Unlisted says that no machine of the cell sends anything new to it any more, as far as a master
	// knows, since it is to stop; UnlistingAt is when this agent began to wait for that, zero if it has not.
	Unlisted    bool
	UnlistingAt time.Time
	// StoppingAt is when this agent began its stop command or delay, zero without one; StopRan says
	// that this has ended, and StopNote how, "" for with 0.
	StoppingAt time.Time
	StopRan    bool
	StopNote   string
	// Unconfirmed says that this agent started it from the last known assignment,
	// before a master had confirmed that in the agent's life.
	Unconfirmed bool
	// GoneAt is when this agent saw that nothing of it is left, later than Exit.At;
	// zero if it did not.
	GoneAt time.Time
	Probe  Probe  // what its health checks have come to
	Line   string // what it says of itself, see TaskStatus.Line
	// Usage is the newest sample, the last one of an incarnation that has ended;
	// nil before the first, and not written to afterwards.
	Usage *schema.Usage
	Bytes int64 // as Held.Bytes, of its own directory
	// Step says which of the task's Before it is, from 1; 0 is the task itself. Attempt counts,
	// from 1, how often that began within the generation: an incarnation that goes on with
	// the next step is of the same.
	Step    int
	Attempt int
	// Given is what it has now, Renewed that this is another than it was started with.
	Given   Given
	Renewed bool
	// LimitsTried are those that were last set, at LimitsAt; LimitsNote says
	// why they are not all in force, "" if they are.
	LimitsTried TaskLimits
	LimitsAt    time.Time
	LimitsNote  string
}

// ref names the generation.
func (h *Held) ref() schema.TaskRef {
	return schema.TaskRef{Task: h.Assignment.Task, Generation: h.Assignment.Generation}
}

// PID is the process of a task that runs, 0 if there is none.
func (h *Held) PID() int {
	if !h.Alive() {
		return 0
	}
	return h.last().PID
}

// last returns the newest incarnation, nil before the first start.
func (h *Held) last() *Incarnation {
	if len(h.Incarnations) == 0 {
		return nil
	}
	return &h.Incarnations[len(h.Incarnations)-1]
}

// Alive reports whether something of h runs or may run.
func (h *Held) Alive() bool {
	c := h.last()
	return h.End == nil && c != nil && c.Exit == nil
}

// passed reports whether it is one of what runs before a task, and has ended well.
func (c *Incarnation) passed() bool {
	return c.Step > 0 && c.Exit != nil && c.Exit.Code == 0 && c.Stop == nil && !c.keeperEnded()
}

// nextStep returns which of the task's Before is to be started next, from 1; 0 is the task
// itself. They begin again with the first unless the one before has just passed.
func (h *Held) nextStep(steps int, boot string) int {
	switch c := h.last(); {
	case steps == 0:
		return 0
	case c == nil || !c.passed() || c.Boot != boot:
		return 1
	case c.Step < steps:
		return c.Step + 1
	}
	return 0
}

// nextAttempt returns the attempt of which the next incarnation is, which is that step.
func (h *Held) nextAttempt(step, steps int) int {
	c := h.last()
	if c == nil {
		return 1
	}
	attempt := c.Attempt
	if attempt == 0 { // an agent of an earlier release started it: as if all had passed
		attempt = (c.Number + steps) / (1 + steps)
	}
	if goesOn := step > 1 || step == 0 && steps > 0; goesOn {
		return attempt
	}
	return attempt + 1
}

// blameless reports whether the incarnation ended for a reason that is not the
// task's: the agent shut down, or the machine did, or somebody ended its keeper or
// damaged its files.
func (c *Incarnation) blameless(boot string) bool {
	if c.Stop != nil && (c.Stop.Kind == schema.CauseShutdown || c.Stop.Kind == schema.CauseUnknown) {
		return true // for the latter's reason was damaged
	}
	return c.keeperEnded() || c.Boot != boot && c.Exit.Code < 0 && c.Exit.Signal == ""
}

// shutDown reports whether it ended since its machine was shut down: all processes are
// sent SIGTERM then, keepers too, after the agent has gone. An agent that sends it has
// written down why before.
func (c *Incarnation) shutDown(boot string) bool {
	return c.keeperEnded() && c.Terminated && c.Boot != boot
}

// keeperEnded reports whether it ended since somebody else than an agent killed its
// keeper or sent that SIGTERM, as a machine does that shuts down, and for no reason
// before: one that was stopped, for being unhealthy say, had its fault already.
func (c *Incarnation) keeperEnded() bool {
	return c.Exit != nil && c.Stop == nil && (c.Unseen || c.Terminated)
}

// failed reports whether h, which has ended, did so by a failure of its own or for
// want of resources, or its last incarnation did before the cell stopped it.
func (h *Held) failed(boot string) bool {
	switch h.End.Kind {
	case schema.CauseFailed, schema.CauseStartFailed, schema.CauseOutOfResources:
		return true
	case schema.CauseFinished:
		return false
	}
	c := h.last()
	return c != nil && c.Exit != nil && c.Stop == nil && !c.blameless(boot) && (c.Exit.Code != 0 || c.Exit.OOM)
}
