package nodeagent

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// Input is everything that a decision depends on.
type Input struct {
	Machine string
	Boot    string // the machine's boot id now
	Now     time.Time
	Life    Life
	// View is nil until the agent has had one: then nothing is started and
	// nothing is stopped.
	View *schema.View
	Held []Held // in any order
	// Capacity is what the machine has for tasks.
	Capacity schema.Resources
	// Sticky are the sticky directories that are here, in any order.
	Sticky []Sticky
	// Images says how images and packages stand here that tasks need.
	Images map[string]ImageState
	// Versions is what was found out before, of data that View has, and is added to; nil:
	// nothing.
	Versions *Versions
	// Unlist is how long stops wait until nothing is sent to the task any more.
	Unlist UnlistLimits
	// Shutdown stops all tasks without ending their generations: the next
	// agent starts them again.
	Shutdown bool
	// Pressure is what was measured of the machine, Limits what follows from it.
	Pressure MachinePressure
	Limits   Limits
	// Removing says that what was removed is still being taken off the disk: what
	// that gives is not known yet.
	Removing bool
}

// UnlistLimits are how long the stop of a task with ports waits at most until no machine of the
// cell sends anything new to it.
type UnlistLimits struct {
	Within   time.Duration // while there is a link to a master; 0: it does not wait
	Unlinked time.Duration // in all, where there was none for a while
	Linked   time.Time     // since when there is one; zero: there is none
}

// until returns when a stop goes on, at the latest, that has waited from began on.
func (l UnlistLimits) until(now, began time.Time) time.Time {
	longest := due(now, began, max(l.Within, l.Unlinked))
	if l.Linked.IsZero() {
		return longest
	}
	at := began
	if l.Linked.After(began) {
		at = l.Linked
	}
	return earlier(due(now, at, l.Within), longest)
}

// cause returns what all causes have in common that are found now of a generation.
func (in *Input) cause(generation uint64) schema.Cause {
	return schema.Cause{Machine: in.Machine, Generation: generation, At: in.Now}
}

// Plan is what to do now and what to say.
type Plan struct {
	// Actions are to be done in this order, each as its Kind says.
	Actions []Action
	// Sticky are to be done as their Kind says, in any order.
	Sticky []StickyAction
	// Checks are the health checks that shall go on; all others end.
	Checks []Check
	// Tasks are the report's entries, by task and generation. They have the state before
	// Actions.
	Tasks []schema.TaskStatus
	// Wake is when to decide again if nothing happens before; zero: never.
	Wake time.Time
	// Alive counts the generations that may have a process.
	Alive int
	// Overload is for the report.
	Overload *schema.Overload
	// Withheld are the generations that must never run twice and are not started
	// since no master has confirmed them in this life, sorted as Tasks are.
	Withheld []schema.TaskRef
}

// ActionKind is what an Action does.
type ActionKind string

// The kinds of action.
const (
	// Start writes the assignment to disk if it is not there, verifies its
	// ports, and starts Incarnation; of an alloc it makes what holds its tasks.
	Start ActionKind = "start"
	// Unlist records Cause as Term does, and nothing else: the stop waits until the task is
	// Unlisted.
	Unlist ActionKind = "unlist"
	// StopCommand records Cause as Term does, and begins to run Command beside the
	// incarnation, for Timeout at most.
	StopCommand ActionKind = "stop command"
	// Delay records Cause as Term does, and nothing else: the signal comes later.
	Delay ActionKind = "delay stop"
	// Term records Cause as the incarnation's Stop if it has none, and then
	// sends SIGTERM, or what the task asks for in its place, or removes what was made for an alloc.
	Term ActionKind = "term"
	// Kill sends SIGKILL to all of the incarnation.
	Kill ActionKind = "kill"
	// Limit sets Limits on a running incarnation; what cannot be set now is
	// noted.
	Limit ActionKind = "limit"
	// Renew puts what has changed of what the task was given in its place, and then sends
	// Signals, as Renewal says; what is there already is no error.
	Renew ActionKind = "renew"
	// Reap records Exit as the incarnation's: it ended with the machine's
	// last boot, and nobody saw how.
	Reap ActionKind = "reap"
	// End records Cause as the generation's End.
	End ActionKind = "end"
	// Prune removes the directory of an old incarnation.
	Prune ActionKind = "prune"
	// Remove removes the generation's directory.
	Remove ActionKind = "remove"
)

// Action is one thing to do to one generation.
type Action struct {
	Kind        ActionKind
	Task        schema.TaskName
	Generation  uint64
	Incarnation int                // for Start, Unlist, StopCommand, Delay, Term, Kill, Limit, Renew, Reap, Prune
	Assignment  *schema.Assignment // for Start, Renew
	Cause       *schema.Cause      // for Unlist, StopCommand, Delay, Term, End
	Command     []string           // for StopCommand, expanded
	Timeout     time.Duration      // for StopCommand
	Exit        *schema.Exit       // for Reap
	Step        int                // for Start: see Incarnation.Step
	Attempt     int                // for Start: see Incarnation.Attempt
	Unconfirmed bool               // for Start: see Incarnation.Unconfirmed
	Limits      TaskLimits         // for Limit
	Renewal     Renewal            // for Renew
	// Clear says, for Start and End, that the files in the task's work directory
	// are to be removed first: they are what was too much.
	Clear bool
	// Reason and Bytes say, for Prune and Remove, why, and what was measured of
	// what goes.
	Reason Reason
	Bytes  int64
}
