package checkpoint

import (
	"time"

	"github.com/musterhq/muster/reconciler/model"
)

const (
	// Format is what the first line of a checkpoint calls itself.
	Format = "muster checkpoint"
	// Version is that of the format that Write writes. Read takes it and all before it.
	Version = 1
)

// Header is the first line of a checkpoint: what it is of. Field names are stable.
type Header struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Release string    `json:"release"` // of muster that wrote it
	Cell    string    `json:"cell"`
	At      time.Time `json:"at"` // by the master's clock
	// Commit is the repository's newest commit as the master knew it; what of it is in
	// force is in the state.
	Commit string `json:"commit,omitempty"`
	// Since is from when the master has listened to machines without a break, and
	// LostAfterSeconds how long it waits for a silent one.
	Since            time.Time `json:"since"`
	LostAfterSeconds float64   `json:"lostAfterSeconds"`
	// Redaction is the key that values were replaced with, see Redactor; "" if the
	// checkpoint has the values.
	Redaction string `json:"redaction,omitempty"`
	// LastEvent is the id of the newest record in the log of events: what has those above it came
	// later. 0 if there was none, and in a checkpoint of a release that did not write it.
	LastEvent uint64 `json:"lastEvent,omitempty"`
	// Machines, Jobs and Tasks are how many of each follow.
	Machines int `json:"machines"`
	Jobs     int `json:"jobs"`
	Tasks    int `json:"tasks"`
}

// HeaderOf returns the header of a cell of which a master knew so much.
func HeaderOf(s *model.State, o *model.Observed, commit string, now time.Time) Header {
	h := Header{
		Format: Format, Version: Version, Cell: s.Cell, At: now, Commit: commit,
		Since: o.ListeningSince(), LostAfterSeconds: o.LostAfter.Seconds(),
		Machines: len(s.Machines), Jobs: len(s.Jobs),
	}
	for _, c := range s.Chunks {
		h.Tasks += len(c.Tasks)
	}
	return h
}

// LostAfter is how long a silent machine is waited for.
func (h *Header) LostAfter() time.Duration {
	return time.Duration(h.LostAfterSeconds * float64(time.Second))
}
