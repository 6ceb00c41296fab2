package schema

import (
	"slices"
	"strings"
	"time"
)

// EventKind is an edge of a task's, a job's, a machine's or the cell's life.
type EventKind string

// The events. Those of tasks are Borg's (§2.3): submit, schedule, update,
// evict, lost, fail, finish, kill.
const (
	EventSubmit    EventKind = "submit"    // a job was admitted
	EventReject    EventKind = "reject"    // a job was not admitted
	EventSchedule  EventKind = "schedule"  // a generation was assigned to a machine
	EventStart     EventKind = "start"     // an incarnation runs
	EventRestart   EventKind = "restart"   // an incarnation ended and the agent starts another; of a job, see RestartRequest
	EventUnhealthy EventKind = "unhealthy" // an incarnation fails its health check; the agent restarts it
	EventOOM       EventKind = "oom"       // processes of an incarnation that lives were killed for lack of memory
	EventUpdate    EventKind = "update"    // new version reached the job
	EventRemove    EventKind = "remove"    // a job was removed; its tasks, if it has any, are stopped
	EventRollout   EventKind = "rollout"   // a rollout has passed its canary, has failed, or is done
	EventEvict     EventKind = "evict"     // the cell stopped a task, see Cause
	EventLost      EventKind = "lost"      // a machine took the task with it
	EventFail      EventKind = "fail"      // a generation failed
	EventFinish    EventKind = "finish"    // a batch task is done
	EventKill      EventKind = "kill"      // a task was stopped because its owner said so
	EventApply     EventKind = "apply"     // a commit's data is in the store
	EventStale     EventKind = "stale"     // a package of a commit was not taken
	EventHold      EventKind = "hold"      // removals are held, or no longer
	EventSuspend   EventKind = "suspend"   // somebody suspended a job or the cell, see Suspension
	EventResume    EventKind = "resume"    // a suspension has ended
	EventSource    EventKind = "source"    // the repository got into trouble or out of it, or its history was rewritten
	EventMachine   EventKind = "machine"   // a machine joined, was lost or returned; a condition of it began or ended
	EventExec      EventKind = "exec"      // somebody ran a command beside a task
	EventRefuse    EventKind = "refuse"    // a master refused something to somebody who may not ask for it
	EventMaster    EventKind = "master"    // a master began to lead
	EventStore     EventKind = "store"     // the store was lost, was cared for (a snapshot, a defragmentation), or could not be
)

// EventKinds returns all kinds, sorted.
func EventKinds() []EventKind {
	return []EventKind{
		EventApply, EventEvict, EventExec, EventFail, EventFinish, EventHold, EventKill, EventLost, EventMachine, EventMaster, EventOOM, EventRefuse, EventReject, EventRemove, EventRestart,
		EventResume, EventRollout, EventSchedule, EventSource, EventStale, EventStart, EventStore, EventSubmit, EventSuspend, EventUnhealthy, EventUpdate,
	}
}

// Event is one line of the cell's history.
type Event struct {
	At      time.Time `json:"at"`
	Kind    EventKind `json:"kind"`
	Job     string    `json:"job,omitempty"`  // user/job
	Task    string    `json:"task,omitempty"` // user/job/index
	Machine string    `json:"machine,omitempty"`
	// Generation is the task's, where the event is about one.
	Generation uint64    `json:"generation,omitempty"`
	Commit     string    `json:"commit,omitempty"`
	Cause      CauseKind `json:"cause,omitempty"`
	// Declared says that a commit asks for what happens to the machine.
	Declared bool   `json:"declared,omitempty"`
	Message  string `json:"message"`
	// Input is what the event has come from, where that is not the cell's own doing; nil
	// where the other fields say all of it.
	Input *EventInput `json:"input,omitempty"`
}

// EventInput is what came to a cell from outside, as far as it takes that to have the same
// happen again: one field is set.
type EventInput struct {
	Join      *EventJoin      `json:"join,omitempty"`
	Lost      *EventLoss      `json:"lost,omitempty"`
	Returned  bool            `json:"returned,omitempty"` // a machine that was lost speaks again
	Condition *EventCondition `json:"condition,omitempty"`
	Suspend   *Suspension     `json:"suspend,omitempty"`
	Resume    *EventEnded     `json:"resume,omitempty"`
	Restart   *RestartRequest `json:"restart,omitempty"`
	Cancel    *EventEnded     `json:"cancel,omitempty"`  // of a restart
	Forget    *Forgotten      `json:"forget,omitempty"`  // of the machine
	Delayed   *EventDelay     `json:"delayed,omitempty"` // of a commit that is applied
}

// EventDelay is how long a commit waited for the end of a suspension of the cell.
type EventDelay struct {
	Seconds float64 `json:"seconds"`
}

// EventJoin is how a machine joins.
type EventJoin struct {
	// Offers is what it offers, if that is not what it did when it joined last.
	Offers *MachineInfo `json:"offers,omitempty"`
	Reboot bool         `json:"reboot,omitempty"` // it was started again since then
}

// EventLoss is for how long a machine was silent that is given up for that; 0 for another
// reason.
type EventLoss struct {
	SilentSeconds float64 `json:"silentSeconds,omitempty"`
}

// EventCondition is a condition of a machine that begins or is over.
type EventCondition struct {
	Condition
	Over bool `json:"over,omitempty"`
}

// EventEnded is what somebody has ended: the suspension or the restart of that name.
type EventEnded struct {
	Name string `json:"name"`
	By   string `json:"by"`
}

// of reports whether e is about a job or one of its tasks.
func (e *Event) of(job string) bool { return e.Job == job || strings.HasPrefix(e.Task, job+"/") }

// EventRecord is an event in the log. IDs rise; there may be gaps.
type EventRecord struct {
	ID uint64 `json:"id"`
	Event
}

// EventQuery says which events are wanted. An empty field matches all.
type EventQuery struct {
	// After is a cursor: only records with a higher ID.
	After uint64
	// Newest asks for the last Limit records that match rather than the first;
	// they come oldest first all the same.
	Newest  bool
	Limit   int    // 0: no limit
	Job     string // user/job; its tasks' events are among them
	Task    string // user/job/index
	Machine string
	Kind    EventKind
	AnyJob  []string // one of these jobs, as Job
}

// Matches reports whether e is wanted, apart from After and Limit.
func (q EventQuery) Matches(e *Event) bool {
	return (q.Job == "" || e.of(q.Job)) &&
		(len(q.AnyJob) == 0 || slices.ContainsFunc(q.AnyJob, e.of)) &&
		(q.Task == "" || e.Task == q.Task) &&
		(q.Machine == "" || e.Machine == q.Machine) &&
		(q.Kind == "" || e.Kind == q.Kind)
}
