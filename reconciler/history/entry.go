package history

import (
	"time"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// Version is that of the fields of what is stored and answered: a later one may mean something
// else by a field.
const Version = 1

// State is how far a cell has come with a commit.
type State string

// The states.
const (
	Open       State = "going on"   // it is not as desired yet
	Converged  State = "converged"  // all is as desired
	Superseded State = "superseded" // another commit came before that
	Unsettled  State = "unsettled"  // it was not as desired an hour after the plan ended
	Unread     State = "unreadable" // what was kept of it cannot be read: Unplanned says why
)

// Entry is a commit that a master took. Field names are stable.
type Entry struct {
	Version int               `json:"version"`
	Cell    string            `json:"cell"`
	Commit  string            `json:"commit"`
	By      schema.Authorship `json:"by"`
	Base    string            `json:"base,omitempty"` // commit that was applied before
	Seen    time.Time         `json:"seen"`           // when the cell was as it was planned on
	// State is how far the cell has come with it, until Until: zero while it goes on.
	State State     `json:"state"`
	Until time.Time `json:"until,omitzero"`
	// Unplanned is why there is no plan of it; "" if there is one, or will be.
	Unplanned string `json:"unplanned,omitempty"`
	// Late is how many directories were still being compiled: of what the commit changes in
	// them and applies with them there is no plan.
	Late int `json:"late,omitempty"`
	// Ending is how the plan ends, and Seconds after how long, at the least.
	Ending  plan.Ending `json:"ending,omitempty"`
	Seconds float64     `json:"seconds,omitempty"`
	// Tasks is to how many tasks something was planned to happen; Same and Different how
	// many did that or another thing, as far as it is known.
	Tasks     int `json:"tasks"`
	Same      int `json:"same"`
	Different int `json:"different"`

	// After is the newest event before.
	After uint64 `json:"after"`
	// Stopping are the generations of tasks that were being stopped.
	Stopping []uint64 `json:"stopping,omitempty"`
}

// Comparison is an Entry with all that is known. Field names are stable.
type Comparison struct {
	Entry
	Plan   *plan.Outcome `json:"plan,omitempty"` // without its steps
	Result *Result       `json:"result,omitempty"`
	// Notes are on what is not known.
	Notes []string `json:"notes"`
}
