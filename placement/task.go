package placement

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/schema"
)

// Task is a task that a machine holds, running or on its way out.
type Task struct {
	Name schema.TaskName
	// Generation distinguishes two tasks of one name, one of which is on its
	// way out. A task is identified by its name, machine and generation.
	Generation uint64
	Machine    string
	Priority   schema.Priority
	Limit      schema.Resources
	// Since is when its generation was decided: a task that another version replaces on the same
	// machine came then. Of tasks that are otherwise as good to evict that goes which came last;
	// the zero value means that it comes now.
	Since time.Time
	// Reservation is what the cell holds back for the task as estimated from
	// its use. The zero value means that there is no estimate: the limit.
	Reservation schema.Resources
	Ports       schema.Ports
	// AllocPorts are what it has in the network that the tasks of its alloc share, and none of
	// the machine's.
	AllocPorts schema.Ports
	Devices    []DeviceUse
	// Stopping is true when the task is stopping: it holds what it has
	// and is nobody's victim, since it leaves anyway.
	Stopping bool
	// Together is true when all tasks of its job that run stop once this one is evicted:
	// so many an eviction disrupts.
	Together bool
	// Behind is what Decision.Behind said: while the machine is held for that ask, this one may evict the
	// task, also when its job has come to be protected since, see SetProtected. It says nothing of a
	// task that takes others along.
	Behind string
	// Gang is the gang of its job, whose jobs are all of one user: like Together, but all tasks
	// of the gang stop that run, whichever job they are of. "" for none.
	Gang string
	// IsAlloc marks an alloc: a task that only holds resources for others.
	IsAlloc bool
	// Alloc is the alloc inside which the task runs, on the same machine; the
	// task then takes its limit from the alloc and nothing from the machine.
	Alloc schema.TaskName
	// Ask is what the task asked for. With it, a task that is evicted is
	// placed again in the same pass; without it the caller has to ask again.
	// Tasks of one job may share it: name, priority and generation are the
	// task's own.
	Ask *Ask
}

// Ask is a task that wants a machine.
type Ask struct {
	Name       schema.TaskName
	Generation uint64 // under which the snapshot holds the task once placed
	Priority   schema.Priority
	Limit      schema.Resources
	Ports      []string // names; each gets a number
	// PortNumbers are the numbers that some of Ports ask for: a machine where
	// one of them is taken has no room, whoever has it.
	PortNumbers map[string]int
	// AllocNumbers are numbers of ports in the network that the tasks of an alloc share: an
	// alloc where one of them is taken has no room. For asks with an AllocSet.
	AllocNumbers []int
	Devices      []DeviceAsk
	// Prefer is a machine that has room made for the task, or that it has data
	// on, or "": taken if it is feasible.
	Prefer string
	Past
	// On is the only machine that will do, or "": for the tasks of system
	// jobs, see Eligible.
	On string
	// Constraints must all hold of the machine.
	Constraints []Constraint
	Where
	// Preferences are constraints that may be broken, at a cost.
	Preferences []Preference
	// Spread is the attribute over whose values the job is spread as evenly
	// as what is free allows; "" means Options.Spread, NoSpread not at all.
	Spread string
	Nesting
	// Relations say where the task may be and prefers to be by what other tasks are there,
	// and who may be where it is; nil for nothing. Tasks may share them, best those of
	// one job: they are not changed any more.
	Relations *Relations
	// Packages are those that the task needs; machines that hold them are
	// preferred.
	Packages []string
	// IsAlloc asks for an alloc: a task that only holds resources for others.
	IsAlloc bool
	// Everywhere says that each machine has a task of the job: a machine with nothing else is
	// empty, see Weights.Begin.
	Everywhere bool
	// AllocSet, when not zero, is the alloc set inside whose allocs the task
	// has to run.
	AllocSet schema.JobName
	// Alloc, when not zero, is the only alloc of AllocSet that will do.
	Alloc schema.TaskName
	// AllocMax is how many tasks of the job one alloc may have, this one included;
	// 0 is any number.
	AllocMax int
	// Together, when not 0, is how many tasks of the job have to have places for any of
	// those that ask to get one: a machine, or a claim on the room of those that leave.
	// What the job's tasks hold that do not ask counts.
	Together int
	// Gang is for several jobs what Together, which then is 0, is for one; nil for none.
	Gang *Gang
	Waiting
}

// Gang is jobs of one user and priority whose tasks get places together, or none.
type Gang struct {
	Name string
	Jobs []GangJob // the job of the ask is among them
}

// GangJob is a job of a gang, and how many tasks of it have to have places for any task of the
// gang that asks to get one.
type GangJob struct {
	Job   schema.JobName
	Tasks int
}

// Past is what is known of a task, and of its job, from before.
type Past struct {
	// Last is the machine that the task ran on before, or "": taken if it is
	// feasible and as good for the spread of the job as the best there is.
	Last string
	Had  Had
	// Avoid lists machines on which the task crashed recently: not taken.
	Avoid []string
	// Apart lists jobs, sorted, of which one task or more recently made a task of this job wait
	// for processors, or the other way round: machines that hold tasks of them are worse.
	Apart []schema.JobName
}

// Had is what a task that comes back held of the devices of a machine, none if Devices is empty: it gets them again
// there if they are free, also where it would prefer others. Nothing is known if On is "".
type Had struct {
	On      string
	Devices []DeviceUse
}

// gathers reports whether the ask is decided with others, of its job or of its gang.
func (a *Ask) gathers() bool { return a.Together > 0 || a.Gang != nil }

// Waiting is what matters of an ask when there is no room.
type Waiting struct {
	// Returns says that the task had a place, and that Together and Gang are of those tasks only that
	// had one. Asks that say so are decided without the others of the job or the gang, and before them.
	Returns bool
	// Back says that the task was stopped to run again, and comes before others of its priority.
	Back bool
	// Claims says that the task has a claim on what tasks that are leaving still have, see
	// Snapshot.Claim: it is placed where it has room now, or keeps the claim. Nothing is evicted
	// for it, and no machine held. Not for asks that go together.
	Claims bool
	// Waited is how long the task has been pending. See Options.ReserveAfter.
	Waited time.Duration
	// Lasts is how long the task is expected to run, 0 if that is not known: it may run
	// meanwhile where a machine is held for another one.
	Lasts time.Duration
	// Held is the machine that was held for the task in the pass before, "" for none, since
	// HeldSince, zero if that is not known, and HeldUntil when room was expected there as that
	// was first known, zero if it never was.
	// Tasks that are expected to have gone once the room is there, or that it is enough for
	// beside this one, are put there meanwhile; but none after HeldUntil, so that
	// the room comes when those have ended that ran there then.
	Held      string
	HeldSince time.Time
	HeldUntil time.Time
}

// Where is what must hold of a machine beside constraints.
type Where struct {
	// AnyOf are lists of constraints: those of one of them at least must all hold of the
	// machine, if there are any.
	AnyOf [][]Constraint
	// FirstOf are alternatives of devices, in the order in which they are preferred: the task gets
	// Ask.Devices and, on whatever machine, those of the first for which there are enough there.
	// One may be empty. Of machines that are equal otherwise those that have enough for an earlier
	// one come first, see Weights.Wish.
	FirstOf [][]DeviceAsk
	// Tolerations are the taints of machines that the task does not mind.
	Tolerations []Toleration
	// PerDomain bounds the job's tasks in any one domain; {MachineAttribute,
	// 1} is what others call distinct hosts.
	PerDomain []DomainLimit
	// MaxSkew bounds by how many of the job's tasks domains may be ahead of others.
	MaxSkew []SkewLimit
}

// Nesting is how a job is spread over more than the values of one attribute, or not evenly.
type Nesting struct {
	// Then is the attribute over whose values the tasks of each value of Ask.Spread are spread
	// among each other; "" for none.
	Then string
	// Targets are how many of the job's tasks are wanted where machines have a value of
	// Ask.Spread, as far as there is room: those with the least share of it get the next ones,
	// and what is in none of them comes last. nil for as many everywhere. Asks may share them:
	// they are not changed any more.
	Targets []Target
}

// Target is how many tasks are wanted on machines that have a value of an attribute.
type Target struct {
	Value string
	Tasks int
}

// NoSpread as Ask.Spread says that it does not matter how the job is spread.
const NoSpread = "-"

// Op compares a machine's attribute with the values of a constraint.
type Op string

// The operators. Versions are compared as dot-separated numbers (1.10 > 1.9);
// a machine without the attribute fails all but OpNotIn and OpAbsent.
const (
	OpIn      Op = "in"     // equal to one of the values
	OpNotIn   Op = "not-in" // equal to none of the values
	OpExists  Op = "exists" // the machine has the attribute
	OpAbsent  Op = "absent" // the machine has no such attribute
	OpAtLeast Op = ">="     // a version, at least the value
	OpBelow   Op = "<"      // a version, below the value
)

// Constraint is a condition on one attribute of a machine.
type Constraint struct {
	Attribute string
	Op        Op
	Values    []string
}

// Preference is a constraint with a weight, 1 to 100 for what is wished and
// -1 to -100 for what is not.
type Preference struct {
	Constraint
	Weight int
}

// DomainLimit bounds the tasks of a job that may be in one domain: on machines
// that have the same value of Attribute. A machine without it is in no domain
// and cannot be bounded: it is refused.
type DomainLimit struct {
	Attribute string
	Max       int
}

// SkewLimit bounds by how many tasks of a job one domain may be ahead of the one that has
// the fewest: a task is placed only where its domain, with it, has at most Max more. Tasks
// that are stopping do not count, and claims do.
//
// A domain is one that may get tasks of the job: one of its machines is up, is not draining
// or cordoned, has no condition that keeps the task away, has the devices of the task, and
// meets its constraints and tolerations. A domain of which none is so any more is not compared with.
// A machine without the attribute is in no domain, and refused.
type SkewLimit struct {
	Attribute string
	Max       int // at least 1
	// MinDomains is how many domains there have to be: as long as there are fewer, one
	// that is missing is taken to have no task. 0 and 1 are no bound.
	MinDomains int
}

// String returns the limit in words: "maxSkew 1 over rack".
func (l *SkewLimit) String() string { return fmt.Sprintf("maxSkew %d over %s", l.Max, l.Attribute) }
