package schema

import (
	"fmt"
	"slices"
	"time"
)

// Report is everything that an agent knows: an entry for each assignment of
// the view it has, and for each task it holds beyond that. So a task that is
// absent from a report of a view that has it was never sent to the machine,
// and only an entry in state Dead says that a generation has ended.
type Report struct {
	Machine MachineInfo `json:"machine"`
	// View is the version of the assignments that the agent acts on.
	View uint64 `json:"view"`
	// BusyPorts are ports of the machine's range that the agent found in use
	// by others; the cell does not choose them.
	BusyPorts []int `json:"busyPorts,omitempty"`
	// Conditions are what is wrong with the machine, each kind once, sorted
	// as ConditionKinds are.
	Conditions []Condition  `json:"conditions,omitempty"`
	Tasks      []TaskStatus `json:"tasks"` // sorted by task and generation
	// Overload says that the machine has too little CPU; nil if it has enough.
	Overload *Overload `json:"overload,omitempty"`
}

// TaskState is where a generation of a task stands on its machine.
type TaskState string

// The states. Waiting is the time between two incarnations (back-off).
const (
	Starting TaskState = "starting"
	Running  TaskState = "running"
	Waiting  TaskState = "waiting"
	Stopping TaskState = "stopping"
	Dead     TaskState = "dead"
)

// TaskStatus is an agent's word on one generation of a task.
type TaskStatus struct {
	Task       TaskName  `json:"task"`
	Generation uint64    `json:"generation"`
	State      TaskState `json:"state"`
	// Incarnation counts the starts within the generation, from 1; 0 before
	// the first.
	Incarnation int `json:"incarnation"`
	// Attempt counts those that began with the first of what runs before the task, of a
	// task that has any; 0 of others, and if its agent does not say so.
	Attempt   int         `json:"attempt,omitempty"`
	PID       int         `json:"pid,omitempty"`
	StartedAt time.Time   `json:"startedAt,omitzero"` // of the incarnation
	Ports     Ports       `json:"ports,omitempty"`
	Devices   []DeviceUse `json:"devices,omitempty"`
	// Own is its network, of a task with one of its own; nil: Ports are its machine's.
	Own    *TaskNetwork `json:"own,omitempty"`
	Health HealthState  `json:"health,omitempty"`
	// HealthMessage is what the last health check that failed has seen; ""
	// after one that passed.
	HealthMessage string `json:"healthMessage,omitempty"`
	Checking
	// Line is what the task says of itself, at most MaxLine bytes of printable
	// text; it changes at most every few seconds.
	Line string `json:"line,omitempty"`
	// OOMKills counts the processes of the running incarnation that the kernel has
	// killed for lack of memory, which the incarnation outlives.
	OOMKills int64 `json:"oomKills,omitempty"`
	// Failures counts the failures in a row, and RestartAt is when the next
	// incarnation starts (zero: at once), of one that is Waiting.
	Failures  int       `json:"failures,omitempty"`
	RestartAt time.Time `json:"restartAt,omitzero"`
	// Exits are the last MaxCauses ends of incarnations, oldest first.
	Exits []Exit `json:"exits,omitempty"`
	// End says how the generation ended; set when State is Dead.
	End *Cause `json:"end,omitempty"`
	// Note is a plain word on how the task is held (no cgroup, …).
	Note string `json:"note,omitempty"`
	// Withheld says that it must never run twice and its agent has started again: it is
	// not started until a master has confirmed its assignment.
	Withheld bool `json:"withheld,omitempty"`
	// Stuck says that SIGKILL does not end it.
	Stuck bool `json:"stuck,omitempty"`
	// Unconfirmed says that the agent started the running incarnation from the last
	// assignment it knew, before a master had confirmed that. It is said until some
	// minutes after one has.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Data is the digest of the data that the generation runs with, and Alloc the
	// one that it runs in: what a master must know that has lost the assignment.
	Data  Digest    `json:"data,omitempty"`
	Alloc *AllocUse `json:"alloc,omitempty"`
	// Brought is the Bring of its assignment, once all of that is on the machine.
	Brought []string `json:"brought,omitempty"`
}

// Checking is how the health checks of an incarnation go. The zero Checking is that of one of which
// nothing is known.
type Checking struct {
	// Unchecked says that the last checks had no result: they could not be
	// made, for the reason in HealthMessage.
	Unchecked bool `json:"unchecked,omitempty"`
	// HealthyMillis is how many milliseconds the incarnation took from its start until it was
	// healthy; 0 if it was not yet, if that is not known, and of an agent that does not say so.
	HealthyMillis int64 `json:"healthyMillis,omitempty"`
}

// Same reports whether two statuses say the same.
func (t *TaskStatus) Same(o *TaskStatus) bool {
	return t.Task == o.Task && t.Generation == o.Generation && t.State == o.State && t.Incarnation == o.Incarnation && t.Attempt == o.Attempt && t.PID == o.PID &&
		t.StartedAt.Equal(o.StartedAt) && slices.Equal(t.Ports, o.Ports) && slices.Equal(t.Devices, o.Devices) && t.Own.Equal(o.Own) &&
		t.Health == o.Health && t.HealthMessage == o.HealthMessage && t.Checking == o.Checking && t.Line == o.Line &&
		t.OOMKills == o.OOMKills && t.Failures == o.Failures && t.RestartAt.Equal(o.RestartAt) &&
		slices.EqualFunc(t.Exits, o.Exits, func(a, b Exit) bool { return sameExit(&a, &b) }) && sameCause(t.End, o.End) &&
		t.Note == o.Note && t.Withheld == o.Withheld && t.Stuck == o.Stuck && t.Unconfirmed == o.Unconfirmed &&
		t.Data == o.Data && slices.Equal(t.Brought, o.Brought) && (t.Alloc == o.Alloc || t.Alloc != nil && o.Alloc != nil && *t.Alloc == *o.Alloc)
}

// NoteStuck is the Note of a task that is Stuck.
const NoteStuck = "it has not ended 10 s after SIGKILL: one of its processes hangs in the kernel, for example on a disk or a network file system that does not answer"

// NoteWithheld is the Note of a task that is Withheld: it may have been given to
// another machine meanwhile.
const NoteWithheld = "it must never run twice: waiting for a master to confirm its assignment since the agent started"

// Unconfirmed is in the Note of a task of which TaskStatus.Unconfirmed is said.
const Unconfirmed = "started from the last known assignment: no master had confirmed it since the agent started"

// NoteNext begins what the Note of a task says of what it is to have next.
const NoteNext = "next version: "

// MaxLine is the longest line that a task can say of itself, in bytes.
const MaxLine = 200

// HealthState is the outcome of a task's health check; "" without one.
type HealthState string

// The health states.
const (
	HealthUnknown HealthState = "unknown" // not checked yet in this incarnation, or not for long
	Healthy       HealthState = "healthy"
	Unhealthy     HealthState = "unhealthy"
)

// Exit is the end of one incarnation.
type Exit struct {
	Incarnation int `json:"incarnation"`
	// Code is the exit status, or -1 when a signal ended the process or its
	// status is unknown.
	Code   int       `json:"code"`
	Signal string    `json:"signal,omitempty"` // such as SIGKILL
	OOM    bool      `json:"oom,omitempty"`    // the kernel killed it for lack of memory
	At     time.Time `json:"at"`
	// Message says what is known beyond that, such as who sent the signal.
	Message string `json:"message,omitempty"`
	// Blameless says that the task did not end by itself: its keeper was killed,
	// its files on the machine were damaged, its agent or its machine was stopped.
	// It is no crash and no failure.
	Blameless bool `json:"blameless,omitempty"`
}

// sameExit reports whether two exits are the same; each may be nil.
func sameExit(x, y *Exit) bool {
	if x == nil || y == nil {
		return x == y
	}
	a, b := *x, *y
	a.At, b.At = time.Time{}, time.Time{}
	return a == b && x.At.Equal(y.At)
}

// CrashLoop is how many failures make a crash loop: one is bad luck.
const CrashLoop = 2

// Crashes counts the exits that are the task's own.
func Crashes(exits []Exit) int {
	n := 0
	for i := range exits {
		if !exits[i].Blameless {
			n++
		}
	}
	return n
}

// String returns "exited with status 3", "killed by SIGKILL (out of memory)".
func (e Exit) String() string {
	var s string
	switch {
	case e.Signal != "":
		s = "killed by " + e.Signal
		if e.OOM {
			s += " (out of memory)"
		}
	case e.Code >= 0:
		s = fmt.Sprintf("exited with status %d", e.Code)
	case e.Blameless && e.Message != "": // which says it all
		return "ended: " + e.Message
	default:
		s = "ended, status unknown"
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// CauseKind says why a generation ended or shall end.
type CauseKind string

// The causes. The first group is what happens to a task. The second is what the cell does
// to it; superseded and shutdown are those of its agent. The last is what the task, or its
// machine, is short of, or fails.
const (
	CauseFinished    CauseKind = "finished"     // a batch task exited 0
	CauseFailed      CauseKind = "failed"       // it ended and its restarts are used up
	CauseStartFailed CauseKind = "start-failed" // it could not be started
	CausePortInUse   CauseKind = "port-in-use"  // refused: a port is taken
	CauseUnknown     CauseKind = "unknown"      // the machine cannot account for it

	CauseRemoved     CauseKind = "removed"             // the job was removed from the repository
	CauseScaledDown  CauseKind = "scaled-down"         // the index is beyond the count
	CauseUpdate      CauseKind = "update"              // the new version needs a new process
	CauseRestart     CauseKind = "restart"             // somebody asked for it, see RestartRequest
	CausePreempted   CauseKind = "preempted"           // for a task of higher priority
	CauseMaintenance CauseKind = "machine-maintenance" // its machine is drained
	CauseMachineLost CauseKind = "machine-lost"        // the machine is silent for too long
	CauseSuperseded  CauseKind = "superseded"          // a newer generation exists elsewhere
	CauseAllocGone   CauseKind = "alloc-gone"          // the alloc that it ran in has ended, or is to
	CauseRebalance   CauseKind = "rebalance"           // it stands where it should not, and is placed again
	CauseGang        CauseKind = "gang"                // others that get places together with it have none
	CauseShutdown    CauseKind = "shutdown"            // the agent was asked to stop all

	// CauseOutOfResources is that the task, or its machine, has used up what
	// there is: see Resource.
	CauseOutOfResources CauseKind = "out of resources"
	// CauseUnhealthy ends an incarnation: its agent starts another.
	CauseUnhealthy CauseKind = "unhealthy"
)

// Resource is what a task or a machine ran out of.
type Resource string

// The resources that are enforced by stopping or moving tasks. Those of a
// machine end the generation: the cell finds another place.
const (
	OwnDisk     Resource = "disk"           // more than the task's own limit; it is restarted
	MachineRAM  Resource = "machine memory" // the machine has too little left
	MachineDisk Resource = "machine disk"
	MachineCPU  Resource = "machine cpu" // it is overloaded, and the master moves the task
)

// Cause is why a generation ended or shall end.
type Cause struct {
	Kind       CauseKind `json:"kind"`
	Message    string    `json:"message,omitempty"`
	Machine    string    `json:"machine,omitempty"`
	Generation uint64    `json:"generation,omitempty"`
	Exit       *Exit     `json:"exit,omitempty"` // of the last incarnation
	// By is the task, as user/job/index, for which one was preempted, or moved.
	By string `json:"by,omitempty"`
	// To is the machine that a task moves to, of CauseRebalance and CauseMaintenance: room is kept there from
	// when it is stopped. "" if it is placed as any other.
	To string `json:"to,omitempty"`
	// Resource is set of CauseOutOfResources.
	Resource Resource  `json:"resource,omitempty"`
	At       time.Time `json:"at"`
}

// sameCause reports whether two causes are the same; each may be nil.
func sameCause(x, y *Cause) bool {
	if x == nil || y == nil {
		return x == y
	}
	a, b := *x, *y
	a.At, a.Exit, b.At, b.Exit = time.Time{}, nil, time.Time{}, nil
	return a == b && x.At.Equal(y.At) && sameExit(x.Exit, y.Exit)
}

// String returns the kind, and the message if there is one.
func (c Cause) String() string {
	switch {
	case c.Message != "":
		return string(c.Kind) + ": " + c.Message
	case c.Exit != nil:
		return string(c.Kind) + ": " + c.Exit.String()
	}
	return string(c.Kind)
}
