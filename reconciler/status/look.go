package status

import (
	"fmt"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Look is what a look at the repository found, as `muster reconcile -o json` prints
// it. Field names are stable.
type Look struct {
	Commit  string `json:"commit"`  // the head
	Was     string `json:"was"`     // the head as it was known before; Commit if nothing is new
	Applied string `json:"applied"` // last commit whose data is in the store
	// Rewritten says that Commit does not descend from Was.
	Rewritten bool `json:"rewritten,omitempty"`
	// Suspended says that the whole cell is: Commit is not applied until that ends.
	Suspended bool `json:"suspended,omitempty"`
	// Errors is how many mistakes keep anything of Commit from being read, Stale how many
	// directories of it are, and Pending how many wait until all is compiled; they are known
	// once it is applied.
	Errors  int `json:"errors"`
	Stale   int `json:"stale"`
	Pending int `json:"pending,omitempty"`
}

// LookOf returns what a look found that was seen between two statuses.
func LookOf(before, after *Status, seen model.Seen) *Look {
	l := &Look{Commit: seen.Commit, Was: before.Commit, Applied: after.Applied, Rewritten: seen.Rewritten != ""}
	for i := range after.Suspended {
		l.Suspended = l.Suspended || after.Suspended[i].All()
	}
	if after.Applied == seen.Commit {
		l.Stale, l.Pending = len(after.Stale), len(after.Pending)
		if after.Unread != nil {
			l.Errors = len(after.Unread.Diagnostics)
		}
	}
	return l
}

// String says in one line what was found.
func (l *Look) String() string {
	var s string
	switch {
	case l.Commit == l.Was:
		s = "already at " + model.ShortCommit(l.Commit)
	case l.Was == "":
		s = "found " + model.ShortCommit(l.Commit)
	default:
		s = fmt.Sprintf("found %s (was %s)", model.ShortCommit(l.Commit), model.ShortCommit(l.Was))
	}
	if l.Rewritten {
		s += ", which does not descend from it"
	}
	switch {
	case l.Applied != l.Commit && l.Suspended:
		s += ", not applied: the cell is suspended"
	case l.Applied != l.Commit:
		s += ", applying"
	case l.Errors > 0:
		s += ", of which nothing could be read: " + schema.Count(l.Errors, "error")
	case l.Stale == 1:
		s += ", 1 directory of it is stale"
	case l.Stale > 1:
		s += fmt.Sprintf(", %d directories of it are stale", l.Stale)
	}
	if l.Pending > 0 {
		s += fmt.Sprintf(", %d %s to follow when all is compiled", l.Pending, schema.Verb(l.Pending, "directory", "directories"))
	}
	return s
}

// SourceError says why the repository cannot be read.
type SourceError struct {
	Message string
	Hint    string
}

func (e *SourceError) Error() string { return e.Message }

// SourceErrorOf returns the trouble of a look and its hint.
func SourceErrorOf(trouble error) *SourceError {
	message, hint := schema.HintOf(trouble)
	return &SourceError{message, hint}
}

// Standing is how a commit stands to the head of the branch that is followed.
type Standing struct {
	Name   string `json:"name"`             // the commit as it was asked for
	Head   string `json:"head"`             // the head that it was held against
	Branch string `json:"branch,omitempty"` // that is followed, if it is known
	Is     Stand  `json:"is"`
	// Message says why, of one that is elsewhere or unknown.
	Message string `json:"message,omitempty"`
}

// Stand is a word for how a commit stands to a head.
type Stand string

// The words.
const (
	StandsAtHead    Stand = "head"      // it is the head
	StandsContained Stand = "contained" // the head descends from it
	StandsUnseen    Stand = "unseen"    // it may come: the repository does not have it, or the master not yet
	StandsElsewhere Stand = "elsewhere" // the repository has it, and not on the branch
	StandsUnknown   Stand = "unknown"   // it cannot be found out
)
