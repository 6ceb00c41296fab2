package status

import (
	"net/netip"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// Status is what `muster status -o json` prints: the cell at one moment. Field
// names are stable.
type Status struct {
	Cell string    `json:"cell"`
	At   time.Time `json:"at"`
	// Version distinguishes statuses of one master; it is sent in a header.
	Version uint64 `json:"-"`
	Commit  string `json:"commit"`  // head seen in the repository
	Applied string `json:"applied"` // last commit whose data is in the store
	// By is who made Applied; it is left out if that is not known, as of a work tree.
	By        schema.Authorship `json:"by,omitzero"`
	Converged bool              `json:"converged"` // Applied is Commit, nothing stale, rejected or held, all runs as desired
	// Waiting says in words what stands between the cell and Converged.
	Waiting []string `json:"waiting"`
	// Waits is what of Waiting no other field has.
	Waits []Wait `json:"waits"`
	// Blocked is what of Waiting does not end by itself: a person has to act.
	Blocked []Blocker `json:"blocked"`
	Behind
	// Unread is set when nothing of the newest commit could be read, and all runs
	// on with the data of the one before.
	Unread   *UnreadCommit `json:"unread,omitempty"`
	Rejected []Rejection   `json:"rejected"`
	// Held are removals that the newest commit asks for and that wait for leave.
	Held []intent.Hold `json:"held"`
	// Losses are parts of the cell in which the tasks of silent machines are left
	// where they are, since too many are silent.
	Losses []control.LossHold `json:"losses"`
	// Suspended are the jobs that commits leave as they are, or all of them,
	// since a person has said so.
	Suspended []SuspensionStatus `json:"suspended"`
	// Warnings are those of the commit that is applied, and of quotas: those that the
	// machines do not back, and owners that have more than theirs is now. They keep
	// nothing from Converged.
	Warnings []quota.Warning `json:"warnings"`
	Machines []MachineStatus `json:"machines"`
	Jobs     []JobStatus     `json:"jobs"`
	Tasks    []TaskStatus    `json:"tasks"`
	// Totals are set where Jobs and Machines leave out those of which there is nothing to
	// say.
	Totals *Totals `json:"totals,omitempty"`
	// Usage is set only for a task that is requested by name; `muster top` has it
	// of all.
	Usage []TaskUsageLine `json:"usage,omitempty"`
	SourceStatus
	// Notes are plain words on how the cell runs (no cgroups, not root, …).
	Notes []string `json:"notes"`
	// Unmatched are the machine objects that speak of no machine of the cell, by
	// name; Notes have them too.
	Unmatched []schema.Diagnostic `json:"unmatched,omitempty"`
	MasterStatus
}

// MasterStatus is what the master that was asked is, if it does not lead.
type MasterStatus struct {
	// Master says why the master that was asked does not lead the cell; it is left
	// out while it does. All else is then as this master knew it last, and
	// Converged is false.
	Master *Absence `json:"master,omitempty"`
	// Replica says that a master was asked that does not lead, and that all is as the one
	// that leads said last; it is left out by that.
	Replica *Replica `json:"replica,omitempty"`
}

// Replica is how a master that does not lead knows the state of its cell.
type Replica struct {
	Leader string `json:"leader"` // the API of the master that leads
	// AgeSeconds is the time since the leader said last that the state is so.
	AgeSeconds float64 `json:"ageSeconds"`
}

// SourceStatus is how the repository is.
type SourceStatus struct {
	// Source is the trouble with the repository, if there is one.
	Source string `json:"source,omitempty"`
	// SourceHint says what to do about it, if that is known.
	SourceHint string `json:"sourceHint,omitempty"`
	// SourceAt is when Commit was last known to be the repository's head; it is
	// left out if that was never since the master started.
	SourceAt time.Time `json:"sourceAt,omitzero"`
}

// sourceOf returns how the repository was seen last, and what keeps its newest commit
// from being read and compiled.
func sourceOf(seen model.Seen, trouble error) SourceStatus {
	s := SourceStatus{SourceAt: seen.At}
	if trouble != nil {
		s.Source, s.SourceHint = schema.HintOf(trouble)
	}
	return s
}

// Totals are how much there is in a cell, or the part of it that a status is of.
type Totals struct {
	Machines MachineTotals `json:"machines"`
	Jobs     JobTotals     `json:"jobs"`
	Tasks    TaskTotals    `json:"tasks"`
}

// MachineTotals counts machines, by health.
type MachineTotals struct {
	Total  int `json:"total"`
	Up     int `json:"up"`
	Silent int `json:"silent"`
	Lost   int `json:"lost"`
}

// JobTotals counts jobs.
type JobTotals struct {
	Total     int `json:"total"`
	AsDesired int `json:"asDesired"`
}

// TaskTotals are the sums of what jobs say of their tasks.
type TaskTotals struct {
	Desired int `json:"desired"`
	Running int `json:"running"`
	Pending int `json:"pending"`
	Failed  int `json:"failed"`
	Unknown int `json:"unknown"`
	Done    int `json:"done"`
}

// Absence is why a master does not lead its cell. Tasks run on meanwhile.
type Absence struct {
	Role    Role      `json:"role"`
	Since   time.Time `json:"since"`
	Message string    `json:"message"`
	// Leader is the API of the master that leads; "" if it is not known.
	Leader string `json:"leader,omitempty"`
}

// Role is what a master is.
type Role string

// The roles.
const (
	Leader   Role = "leader"
	Standby  Role = "standby"  // another master leads, and this one would take over
	Starting Role = "starting" // it has not led yet
	NoStore  Role = "no-store" // the store does not answer, or takes no writes
)

// StalePackage is a directory that still runs its last good version.
type StalePackage struct {
	Dir         string              `json:"dir"`
	Reason      string              `json:"reason"`
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
	Next        string              `json:"next"` // the command to type
}

// Behind are the directories of which the applied commit is not what runs.
type Behind struct {
	Stale []StalePackage `json:"stale"`
	// Pending follow when they are compiled.
	Pending []PendingPackage `json:"pending"`
}

// PendingPackage is a directory whose part of the applied commit follows when it is compiled. It
// runs its last good version until then, and nobody has to do anything.
type PendingPackage struct {
	Dir    string `json:"dir"`
	Reason string `json:"reason"`
}

// UnreadCommit is a commit of which nothing could be read: it has no module, say.
type UnreadCommit struct {
	Reason      string              `json:"reason"`
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
	Next        string              `json:"next"` // what to do
}

// Rejection is a job whose newest version was not admitted.
type Rejection struct {
	Job string `json:"job"` // user/job
	// User and Band name the quota that it counts in; Band is left out of a job
	// whose priority has a name that stands for nothing.
	User       string               `json:"user"`
	Band       schema.Band          `json:"band,omitempty"`
	Cause      quota.RejectionCause `json:"cause"`
	Labels     map[string]string    `json:"labels,omitempty"` // of its newest version, as in JobStatus
	Diagnostic schema.Diagnostic    `json:"diagnostic"`
	Next       string               `json:"next"`
	// Machines says that machines that join may have it admitted: its quota is
	// large enough, and the machines do not back it.
	Machines bool `json:"machines,omitempty"`
	// Until is when a quota begins that may have it admitted; zero: none does.
	Until time.Time `json:"until,omitzero"`
}

// MachineStatus is one machine.
type MachineStatus struct {
	Name   string `json:"name"`
	Health string `json:"health"` // up, silent, lost
	// Address is the IP address at which its tasks are reached; "" if that is not known.
	Address string `json:"address,omitempty"`
	// Subnets are those that its tasks get addresses of, and Leaving those that they got some
	// of before and may still have.
	Subnets  []netip.Prefix   `json:"subnets,omitempty"`
	Leaving  []netip.Prefix   `json:"leaving,omitempty"`
	Capacity schema.Resources `json:"capacity"` // for tasks
	// Reserved is kept for the system, beside Capacity.
	Reserved schema.Resources     `json:"reserved,omitzero"`
	Used     schema.Resources     `json:"used"` // limits of what it holds
	Tasks    int                  `json:"tasks"`
	Devices  []schema.DeviceGroup `json:"devices,omitempty"`
	Cordoned bool                 `json:"cordoned"` // gets no new tasks
	// Empty says that it is up, holds nothing but tasks of system jobs, and is not held for any
	// other and nothing moves to it, in a cell that has machines emptied (rebalance.emptyBelow).
	Empty bool `json:"empty,omitempty"`
	// Draining is how far the machine is emptied, if it is to be.
	Draining *control.Draining `json:"draining,omitempty"`
	// Conditions are what is wrong with it, as its agent last said.
	Conditions []schema.Condition `json:"conditions,omitempty"`
	// Attributes are what its agent reports, and over it the declared labels.
	Attributes map[string]string `json:"attributes,omitempty"`
	Notes      []string          `json:"notes,omitempty"`
	// Place says which agent it is, and where that joined from.
	Place schema.Place `json:"place,omitzero"`
}

// TaskStatus is one task that exists or should.
type TaskStatus struct {
	Name    string    `json:"name"` // user/job/index
	State   TaskState `json:"state"`
	Machine string    `json:"machine"`
	// Address is the IP address at which its ports are reached: its own if it has a network of
	// its own, else that of its machine; "" if that is not known.
	Address string `json:"address,omitempty"`
	// Address6 is its own of IPv6 if it has one of IPv4, too.
	Address6  string             `json:"address6,omitempty"`
	PID       int                `json:"pid"`
	StartedAt time.Time          `json:"startedAt,omitzero"`
	Restarts  int                `json:"restarts"` // incarnations beyond the first, and generations that failed
	Ports     schema.Ports       `json:"ports"`
	Devices   []schema.DeviceUse `json:"devices,omitempty"`
	// Alternative says which alternative of its resources it got on its machine, such as "2 of 3:
	// 2 gpu"; "" if it has none (firstOf).
	Alternative string `json:"alternative,omitempty"`
	// Alloc is the alloc that the task runs in, as user/set/index; it then uses
	// nothing of its machine's beyond what the alloc reserves.
	Alloc string `json:"alloc,omitempty"`
	// Drain is what keeps the task on a machine that is draining.
	Drain string `json:"drain,omitempty"`
	// Inside are the tasks that run in the alloc, of a task that is one, sorted.
	Inside      []string           `json:"inside,omitempty"`
	Generation  uint64             `json:"generation"`
	Incarnation int                `json:"incarnation"`
	Health      schema.HealthState `json:"health,omitempty"`
	// HealthMessage is what its last health check that failed has seen.
	HealthMessage string `json:"healthMessage,omitempty"`
	// Line is what the task says of itself.
	Line string `json:"line,omitempty"`
	// RestartAt is when its agent starts it again.
	RestartAt time.Time `json:"restartAt,omitzero"`
	Reason    string    `json:"reason"`
	History   []string  `json:"history"` // last ends of incarnations and generations, oldest first
}

// TaskState is a word for how a task is.
type TaskState string

// The states.
const (
	TaskPending  TaskState = "pending"  // on no machine
	TaskStarting TaskState = "starting" // its machine has not said yet that it runs
	TaskRunning  TaskState = "running"
	TaskWaiting  TaskState = "waiting"  // its agent restarts it after a back-off
	TaskStopping TaskState = "stopping" // it is on its way out
	TaskFailed   TaskState = "failed"   // on no machine, and tried again after a back-off
	TaskUnknown  TaskState = "unknown"  // its machine is silent or lost: it may run, and it may not
	TaskDead     TaskState = "dead"     // it has ended, and the master has not decided what follows
	TaskDone     TaskState = "done"     // of a batch job: it has finished
)

// TaskStates returns all states, in the order of a task's life.
func TaskStates() []TaskState {
	return []TaskState{TaskPending, TaskStarting, TaskRunning, TaskWaiting, TaskStopping, TaskFailed, TaskUnknown, TaskDead, TaskDone}
}
