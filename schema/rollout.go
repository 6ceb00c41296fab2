package schema

import (
	"cmp"
	"time"
)

// UpdatePolicy bounds what a rollout may do at once.
type UpdatePolicy struct {
	// MaxParallel is the most tasks of the job that a rollout may have down
	// or not yet healthy at once; at least 1.
	MaxParallel int `json:"maxParallel"`
	// MinHealthySeconds is how long a new task must have run (and passed its
	// health check, if it has one) before it counts as healthy.
	MinHealthySeconds int `json:"minHealthySeconds"`
	// Canary is the tasks that get new version first; nil: none does.
	Canary *Canary `json:"canary,omitempty"`
	// ProgressDeadlineSeconds is how long a rollout may go without a further task of new
	// data getting healthy before it has failed, 1 to 86400; 0 is for ever.
	ProgressDeadlineSeconds int `json:"progressDeadlineSeconds,omitempty"`
	// ProgressSeconds is ProgressDeadlineSeconds in what releases before 0.1 have stored. It is
	// 0 in all that this one compiles: ask ProgressDeadline.
	ProgressSeconds int `json:"progressSeconds,omitempty"`
	// OnFailure is what becomes of a rollout that has failed; "" is Pause.
	OnFailure OnFailure `json:"onFailure,omitempty"`
}

// ProgressDeadline returns how long a rollout may go without a further task of new data
// getting healthy, in seconds; 0 is for ever.
func (u *UpdatePolicy) ProgressDeadline() int {
	return cmp.Or(u.ProgressDeadlineSeconds, u.ProgressSeconds)
}

// Canary is the part of a job that tries new version before the rest gets it.
type Canary struct {
	Tasks int `json:"tasks"` // 1 to MaxTasks
	// WaitSeconds is how long after all of them were healthy the rollout waits
	// before it goes on by itself, 0 to 86400.
	WaitSeconds int     `json:"waitSeconds"`
	Promote     Promote `json:"promote"`
}

// Promote says what ends the wait for a canary.
type Promote string

// The ways to go on after a canary.
const (
	PromoteAuto   Promote = "auto"   // its time
	PromoteCommit Promote = "commit" // a commit with a PromoteTrailer
)

// OnFailure says what becomes of a rollout that has failed.
type OnFailure string

// The ways to go on after a failure.
const (
	Pause  OnFailure = "pause"  // no further task is stopped for the new version
	Return OnFailure = "return" // all tasks get the last healthy version again
)

// Disruption bounds what muster may take down of a job by its own choice:
// updates, drains and moves together.
type Disruption struct {
	// MaxDown is the most tasks of the job that may be down at once for such a
	// task to be stopped, those that are down for any other reason among them;
	// 1 to MaxTasks. 0 is UpdatePolicy.MaxParallel.
	MaxDown int `json:"maxDown,omitempty"`
	// PerHour is how many tasks that serve may be stopped so in any 60 minutes;
	// 1 to MaxTasks. 0 is no bound.
	PerHour int `json:"perHour,omitempty"`
}

// MayBeDown returns the most tasks that may be down at once, at least 1.
func (j *Job) MayBeDown() int {
	if j.Disruption != nil && j.Disruption.MaxDown > 0 {
		return j.Disruption.MaxDown
	}
	return max(1, j.Update.MaxParallel)
}

// Rollout is how far a job of kind Service or System has come with its admitted
// data: what must outlast a master, and is not seen in the tasks' records.
type Rollout struct {
	// After is the cell's last generation when the data was admitted: higher
	// ones were decided for it.
	After uint64    `json:"after"`
	Since time.Time `json:"since"`
	// Healthy is the most tasks of the data that were healthy at once, and
	// Progress is when it last grew; kept of a policy with a ProgressDeadline.
	Healthy  int       `json:"healthy,omitempty"`
	Progress time.Time `json:"progress,omitzero"`
	// Canary is from when on all tasks of the canary have been healthy, less the time for which the cell kept
	// one from running; CanaryStopped is since when one is kept so, zero if none is.
	Canary        time.Time `json:"canary,omitzero"`
	CanaryStopped time.Time `json:"canaryStopped,omitzero"`
	// Promoted is set by a commit's PromoteTrailer for this very data.
	Promoted bool `json:"promoted,omitempty"`
	// Passed is that the rollout has gone on beyond its canary, or needs none.
	Passed bool `json:"passed,omitempty"`
	// Failed says why the rollout has failed, "" if it has not.
	Failed   string    `json:"failed,omitempty"`
	FailedAt time.Time `json:"failedAt,omitzero"`
	// Returned is the data that has failed, of a job that goes back to its last
	// healthy data, or has: it is not tried again while it is what is desired.
	Returned Digest `json:"returned,omitempty"`
}

// PromoteTrailer is the key of a commit's trailer whose value, USER/JOB, says that
// the rollout of that job goes on beyond its canary.
const PromoteTrailer = "Muster-Promote"
