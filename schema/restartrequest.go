package schema

import (
	"fmt"
	"time"
)

// RestartRequest is a request that the tasks of a job, or one of them, get a new
// generation of the version that they run, one after the other. It is stored until
// all of them have, or somebody ends it.
type RestartRequest struct {
	// Name is the job, user/job, or the task, user/job/index.
	Name   string `json:"name"`
	Reason string `json:"reason"`
	// By is who asked for it: the name in a certificate, or the user of the
	// master's machine, as far as that is known.
	By string    `json:"by"`
	At time.Time `json:"at"`
	// After is the cell's last generation when it was asked for: what has a
	// higher one need not be restarted any more.
	After uint64 `json:"after"`
	// Tasks is how many there were to be restarted.
	Tasks int `json:"tasks"`
	// Failed says which task has failed after its restart and why: no further one
	// is restarted. "" if none has.
	Failed   string    `json:"failed,omitempty"`
	FailedAt time.Time `json:"failedAt,omitzero"`
}

// Restarting is the answer to a request for a restart, or for the end of one.
type Restarting struct {
	// Now is the one that is in progress; nil if no task runs that it would be of, or
	// it was cancelled.
	Now *RestartRequest `json:"now"`
	// Was are those whose place it takes, or that were cancelled, sorted by name.
	Was []RestartRequest `json:"was"`
	// AtOnce is the most tasks that may be down for it at once.
	AtOnce int `json:"atOnce,omitempty"`
}

// String says who asked for it when, and why.
func (r *RestartRequest) String() string {
	return fmt.Sprintf("restart requested by %s at %s (%s)", r.By, r.At.UTC().Format(time.RFC3339), r.Reason)
}
