package schema

import (
	"fmt"
	"net/netip"
	"time"
)

// JobRecord is what the store keeps of a job that was admitted, until its last
// task has stopped.
type JobRecord struct {
	Name JobName `json:"name"`
	// Admitted is the digest of the job data that the cell runs; "" when the
	// job was removed and its tasks are being stopped. The data itself is in
	// the store under that digest.
	Admitted Digest `json:"admitted,omitempty"`
	// Count is how many tasks the job has, where something else than its data says so;
	// nil if nothing does. It is no part of a version.
	Count *int `json:"count,omitempty"`
	// Origin is where the admitted data is declared, in the commit that
	// declared it.
	Origin Position  `json:"origin"`
	Since  time.Time `json:"since"` // when Admitted last changed
	// Whole is since when the job wants as many tasks as now, of one whose tasks get places
	// together, where that is another time than Since; nil else. A task that has got its first place
	// from then on has got it with all others. In the store of an earlier build, whole is a time
	// that does not say which record it is of, and is kept as what is unknown.
	Whole *Whole `json:"wholeSince,omitempty"`
	// Asked is since when tasks that never ran have been wanted, where that is another time than
	// Since: a change of the data, or of the count, does not have them wait anew. nil else.
	Asked *Asked `json:"asked,omitempty"`
	// Commit is the one with which Admitted last changed; "" of data that the job
	// has returned to.
	Commit string `json:"commit,omitempty"`
	// Good is the digest of the data with which all tasks that had a place were
	// last healthy, of a job of kind Service or System: what a rollout that
	// fails returns to. "" if there is none.
	Good Digest `json:"good,omitempty"`
	// Proven are the versions that were rolled out to completion, at most MaxProven
	// and the newest first, by the digest of what their tasks run (RunDigest): a
	// return to one of them needs no canary.
	Proven []Digest `json:"proven,omitempty"`
	// Rollout is how far Admitted is rolled out; nil once it is.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Disrupted are the tasks of the last hour that the cell stopped by its own
	// choice while they served, by the minute of the master's clock and oldest
	// first: at most 62.
	Disrupted []Disrupted `json:"disrupted,omitempty"`
	// Apart are the jobs beside which a task of this one waited for processors, or made one
	// wait, recently; at most MaxApart.
	Apart []Apart `json:"apart,omitempty"`
}

// Whole is since when a job has wanted as many tasks together as it does.
type Whole struct {
	Since time.Time `json:"since"`
	// Of is the Since of the record for which that was found out. A release that does not know
	// the field keeps it, whatever it changes in the record: with another Since it says nothing.
	Of time.Time `json:"of"`
}

// WholeSince returns since when the job has wanted as many tasks as it does.
func (r *JobRecord) WholeSince() time.Time {
	if r.Whole == nil || !r.Whole.Of.Equal(r.Since) {
		return r.Since
	}
	return r.Whole.Since
}

// MaxAskedSteps is how many steps Asked has at most.
const MaxAskedSteps = 8

// Asked is since when the tasks of a job have been wanted.
type Asked struct {
	// Steps are in the order of Tasks: the first one with more than the index of a task is of that
	// task, and none that it has been wanted since Of.
	Steps []AskedStep `json:"steps"`
	// Of is the Since of the record for which that was found out, see Whole.
	Of time.Time `json:"of"`
}

// AskedStep is since when a job has had so many tasks.
type AskedStep struct {
	Tasks int       `json:"tasks"`
	Since time.Time `json:"since"`
}

// AskedSince returns since when the task of an index has been wanted.
func (r *JobRecord) AskedSince(index int) time.Time {
	for _, step := range r.AskedSteps() {
		if index < step.Tasks {
			return step.Since
		}
	}
	return r.Since
}

// AskedSteps returns what is known of when tasks were wanted, nil if all of them since Since.
func (r *JobRecord) AskedSteps() []AskedStep {
	if r.Asked == nil || !r.Asked.Of.Equal(r.Since) {
		return nil
	}
	return r.Asked.Steps
}

// MaxApart is how many other jobs a job is kept apart from.
const MaxApart = 8

// Apart is that two jobs are better on different machines, as the record of one of them has it.
type Apart struct {
	Job     JobName   `json:"job"`     // the other one
	Suffers bool      `json:"suffers"` // the job itself does, not the other
	Machine string    `json:"machine"` // on which that was measured
	Message string    `json:"message"` // of the machine's Overload
	Until   time.Time `json:"until"`
}

// With returns the data of a job with another number of tasks, itself if count is nil or
// what it has. The digest of the job stays that of the data.
func (j *Job) With(count *int) *Job {
	if j == nil || count == nil || j.Tasks == *count {
		return j
	}
	sized := *j
	sized.Tasks = *count
	return &sized
}

// MaxProven is how many versions of a job are known to have worked.
const MaxProven = 5

// Disrupted counts stops within one minute. They count until an hour after At,
// which is the last of them, so never too short.
type Disrupted struct {
	At    time.Time `json:"at"`
	Tasks int       `json:"tasks"`
}

// Until is when the stops do not count any more.
func (d Disrupted) Until() time.Time { return d.At.Add(time.Hour) }

// Spent returns how many stops count at now towards the budget for an hour, and when the oldest
// of them will not any more; zero if none counts.
func (r *JobRecord) Spent(now time.Time) (n int, next time.Time) {
	for _, d := range r.Disrupted {
		if !now.Before(d.Until()) {
			continue
		}
		n += d.Tasks
		if next.IsZero() {
			next = d.Until()
		}
	}
	return n, next
}

// MovesRecord is what the store keeps of the moves of a cell, so that a new master does not
// forget what its predecessor has spent.
type MovesRecord struct {
	// Moves are those of the last day, oldest first: those of the last hour by the minute,
	// others by the hour. Older ones may be left.
	Moves []Disrupted `json:"moves,omitempty"`
}

// Empty reports whether r says nothing.
func (r *MovesRecord) Empty() bool { return len(r.Moves) == 0 }

// ChunkSize is the number of task records in one stored document: large enough
// that placing a job is few writes, small enough that one task's change is.
const ChunkSize = 64

// Chunk holds the records of the tasks of one job with indices from
// Number*ChunkSize to (Number+1)*ChunkSize-1, sorted by index. A task without a
// record was never decided upon.
type Chunk struct {
	Job    JobName      `json:"job"`
	Number int          `json:"number"`
	Tasks  []TaskRecord `json:"tasks"`
}

// TaskRecord is what the store keeps of a task: which generation is assigned
// to which machine, and the progress that must outlast a machine's memory.
type TaskRecord struct {
	Index int `json:"index"`

	// Generation is the number of the newest decision about the task, unique
	// in the cell for ever; 0 before the first.
	Generation uint64 `json:"generation,omitempty"`
	// Machine holds Generation; "" while the task is pending or done.
	Machine string `json:"machine,omitempty"`
	// On is the machine that the index belongs to, of a system job. It is kept for
	// as long as the cell knows the machine, so that a machine that returns has the
	// index that it had. Of another job it is the machine that has the sticky
	// directory of the task, "" if none has, or while the task first runs there.
	On string `json:"on,omitempty"`
	// Data is the digest of the job data that Generation runs.
	Data  Digest `json:"data,omitempty"`
	Ports Ports  `json:"ports,omitempty"`
	// OwnNetwork says that Generation has a network of its own: Ports are in that, and none
	// of its machine's.
	OwnNetwork bool `json:"ownNetwork,omitempty"`
	// Devices are what Generation holds of the machine's devices.
	Devices []DeviceUse `json:"devices,omitempty"`
	// Alloc is where Generation runs, of a job in an alloc set.
	Alloc *AllocUse `json:"alloc,omitempty"`
	// Stop, when set, says that the machine shall stop Generation and why.
	// The record keeps Machine until the machine has said that it is dead.
	Stop *Cause `json:"stop,omitempty"`
	// Bring are the image and the packages of the version that the task is to have next (see
	// TaskSpec.Brings), for its machine to pull before Stop is set.
	Bring []string  `json:"bring,omitempty"`
	At    time.Time `json:"at,omitzero"` // when Generation was decided
	// Behind names the task, job or gang for which Machine was held when Generation got it, which it
	// did on condition that it is preempted once that has room: whatever its job says since, as long as that
	// one waits. "" if nothing was, or it could not be preempted and there is room for both.
	Behind string `json:"behind,omitempty"`

	// Had are the devices of its machine that the task held when it was last stopped to run again: it comes back to
	// them. Empty if it was not, or held none.
	Had []DeviceUse `json:"had,omitempty"`

	// Done is the exit of a batch task that finished; it is never run again.
	Done *Exit `json:"done,omitempty"`
	// Failures counts the generations that failed since one last ran well.
	Failures int `json:"failures,omitempty"`
	// NotBefore is when the next generation may be decided (back-off).
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Avoid maps machines on which the task crashed to when they may be
	// tried again.
	Avoid map[string]time.Time `json:"avoid,omitempty"`
	// Held is the machine that is held for the task while it is pending; nil for none.
	Held *HeldFor `json:"held,omitempty"`
	// Causes are the last MaxCauses ends of generations, oldest first.
	Causes []Cause `json:"causes,omitempty"`
}

// HeldFor is a machine that is held for a task which has waited long.
type HeldFor struct {
	Machine string    `json:"machine"`
	Since   time.Time `json:"since"`
	// Until is when room was expected there as that was first known; zero if it never was.
	Until time.Time `json:"until,omitzero"`
}

// MaxCauses is how many ends of generations, and of incarnations, are kept.
const MaxCauses = 5

// MachineRecord is what the store keeps of a machine that joined.
type MachineRecord struct {
	MachineInfo
	// Epoch counts the machine's connections; messages of a lower epoch are
	// refused by either side.
	Epoch uint64 `json:"epoch"`
	// Joined is when the machine last connected.
	Joined time.Time `json:"joined,omitzero"`
	// From is where it connected from, see Connection.
	From string `json:"from,omitempty"`
	// Forgotten is set from when the machine is to be forgotten until its last
	// task has been given up, which is when the record goes.
	Forgotten *Forgotten `json:"forgotten,omitempty"`
	// LostSince is when the master gave the machine up; zero while it has not.
	LostSince time.Time `json:"lostSince,omitzero"`
	// Spoke says that the machine has spoken since it was declared gone: the
	// declaration says nothing of it before it is withdrawn, and made again.
	Spoke bool `json:"spoke,omitempty"`
	// GoneSince is when a machine that was up was first seen to be declared gone:
	// what it said before is no word against that.
	GoneSince time.Time `json:"goneSince,omitzero"`
	// Subnets are those that its tasks get addresses of: at most one of IPv4 and one of IPv6.
	// It has them until it is forgotten, or the ranges of the cell are others.
	Subnets []netip.Prefix `json:"subnets,omitempty"`
	// Leaving are subnets that it had, of which tasks may still have addresses.
	Leaving []netip.Prefix `json:"leaving,omitempty"`
}

// ForgottenRecord is what the store keeps of the machines that it has forgotten.
type ForgottenRecord struct {
	// Epoch is the highest that one of them had: a machine that joins again gets a
	// higher one, since an agent refuses a lower than it has seen.
	Epoch uint64 `json:"epoch"`
}

// Restored is what the store keeps of the last time that its documents were put
// back from a snapshot: what was decided after the snapshot is known to the
// machines alone.
type Restored struct {
	At       time.Time `json:"at"`
	Snapshot time.Time `json:"snapshot"` // when it was taken
	// Counter is the last generation that the snapshot knows. What was given
	// between that and Floor, generations and epochs, is not given again.
	Counter uint64 `json:"counter"`
	Floor   uint64 `json:"floor"`
	// Settled is when the machines had reported; zero before.
	Settled time.Time `json:"settled,omitzero"`
}

// MachineInfo is what a machine says of itself when it joins.
type MachineInfo struct {
	Name string `json:"name"`
	// Boot is the kernel's boot id: the machine's incarnation.
	Boot     string    `json:"boot"`
	Capacity Resources `json:"capacity"` // for tasks
	// Reserved is kept for the system, beside Capacity.
	Reserved Resources `json:"reserved,omitzero"`
	// Ports is the range that the cell may give to tasks.
	Ports PortRange `json:"ports"`
	// Devices are countable things of which tasks get some for themselves, or
	// a share of one.
	Devices []DeviceGroup `json:"devices,omitempty"`
	// Attributes are facts about the machine: arch, os, kernel, hostname,
	// cpu.*, memory.bytes, disk.*, gpu.*, isolation.*, and the labels that it
	// was given.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Notes say in words what the machine cannot do (no cgroups, not root).
	Notes []string `json:"notes,omitempty"`
	// AgentVersion is the version of the agent's binary.
	AgentVersion string `json:"agentVersion"`
	// ID distinguishes the machine from another one with its name: it was drawn when the
	// agent's state directory was made, and is kept there. "" of an agent of an
	// earlier release.
	ID string `json:"id,omitempty"`
	// Recipient is the age recipient of the machine, for which secrets are sealed; "" if it
	// cannot hold any.
	Recipient string `json:"recipient,omitempty"`
	// Address is the IP address at which other machines reach the tasks of this one, as
	// CheckAddress takes it; "" of an agent of an earlier release.
	Address string `json:"address,omitempty"`
	// Shares is where other machines of the cell get what this one holds of images and
	// packages: IP:PORT, or :PORT at Address; "" if it gives them nothing.
	Shares string `json:"shares,omitempty"`
	// Link is known when the machine connects, and not stored.
	Link Connection `json:"-"`
	// Seen is said when the machine connects, and not stored.
	Seen Seen `json:"-"`
}

// Seen is the highest epoch and generation that a machine was sent.
type Seen struct{ Epoch, Generation uint64 }

// BehindError refuses a machine that was sent more than the cell's store has:
// the store was lost, or put back by other means than a restore. To such a machine
// generations would be given a second time, and what it runs would be stopped.
type BehindError struct {
	Machine     string
	Seen, Known Seen
}

// Error says what the machine has seen, and on a second line what to do.
func (e *BehindError) Error() string { return e.Hinted().Error() }

// Hinted takes the two apart.
func (e *BehindError) Hinted() *HintedError {
	what := fmt.Sprintf("generation %d, but the last one in the store is %d", e.Seen.Generation, e.Known.Generation)
	if e.Seen.Epoch > e.Known.Epoch {
		what = fmt.Sprintf("connection %d to this cell, but the last one in the store is %d", e.Seen.Epoch, e.Known.Epoch)
	}
	return Hintf("stop the master and restore the store with `muster master restore SNAPSHOT`; to start without a snapshot, stop the agent with SIGINT and remove its state directory; if that was made for another machine or cell, give the agent one of its own",
		"machine %s has seen %s: the store was lost or is older than the machine's state; its tasks keep running", e.Machine, what)
}

// PortRange is the ports from First to Last, both included, 1 to 65535.
type PortRange struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Assignment is the master's instruction that a generation of a task runs on the machine
// that gets it, or, with Stop, that it shall stop. See View.
type Assignment struct {
	Task       TaskName `json:"task"`
	Generation uint64   `json:"generation"`
	Data       Digest   `json:"data"`
	Job        *Job     `json:"job"` // the data with that digest; shared, never written
	Ports      Ports    `json:"ports,omitempty"`
	// OwnNetwork says that it has a network of its own, see TaskRecord.
	OwnNetwork bool        `json:"ownNetwork,omitempty"`
	Devices    []DeviceUse `json:"devices,omitempty"`
	Alloc      *AllocUse   `json:"alloc,omitempty"` // that it runs in
	Stop       *Cause      `json:"stop,omitempty"`
	// Bring is what the task is to have next, see TaskStatus.Brought.
	Bring []string `json:"bring,omitempty"`
	// Secrets are those of Job, sealed for the machine, by their versions. The agent has
	// them from its View as it starts the task; they are in no other assignment.
	Secrets map[string]string `json:"-"`
	// Network is that of a task with OwnNetwork, once its machine has made it; it is never sent.
	Network *TaskNetwork `json:"-"`
	// Local are variables that the machine sets; they are never sent.
	Local map[string]string `json:"-"`
	// Step says which of the job's Before is run, from 1, by an agent that starts it; 0 is
	// the task itself. Attempt counts how often that has begun. They are never sent.
	Step    int `json:"-"`
	Attempt int `json:"-"`
}

// NetworkOf names the generation whose network one with OwnNetwork is in: the alloc's that it
// runs in, or its own.
func (a *Assignment) NetworkOf() TaskRef {
	if a.Alloc != nil {
		return TaskRef{Task: a.Alloc.Of(a.Task.JobName), Generation: a.Alloc.Generation}
	}
	return TaskRef{Task: a.Task, Generation: a.Generation}
}

// ForStep returns a as what runs in a step of an attempt: with 0 the task itself, and else the
// step-th of its Before in the task's place.
func (a *Assignment) ForStep(step, attempt int) *Assignment {
	out := *a
	out.Step, out.Attempt = step, attempt
	if step == 0 {
		return &out
	}
	job, b := *a.Job, a.Job.Task.Before[step-1]
	job.Task.Process, job.Task.Container = Process{}, b.Container
	if b.Process != nil {
		job.Task.Process = *b.Process
	}
	job.Task.Stop = nil
	out.Job = &job
	return &out
}
