package status

import (
	"fmt"

	"github.com/musterhq/muster/reconciler/model"
)

// Wait is one thing that keeps the cell from Converged and that no other field of
// the status has.
type Wait struct {
	Kind    WaitKind `json:"kind"`
	Name    string   `json:"name,omitempty"` // the commit or the machine; left out if it is of neither
	Message string   `json:"message"`        // as in Waiting
}

// WaitKind is a word for what the cell waits for.
type WaitKind string

// The kinds.
const (
	WaitNoCommit  WaitKind = "no-commit"  // the repository has none that was seen
	WaitCompiling WaitKind = "compiling"  // the newest commit is being compiled
	WaitRestore   WaitKind = "restore"    // machines are heard after a restore
	WaitNoMachine WaitKind = "no-machine" // no machine has joined
	WaitDrain     WaitKind = "drain"      // a machine is being emptied
	WaitGone      WaitKind = "gone"       // a machine that is declared gone has tasks yet
)

// unapplied says why the newest commit is not the one applied, nil if it is, or if
// the repository or a suspension tells.
func (s *Status) unapplied() *Wait {
	switch {
	case s.Source != "":
	case s.Commit == "":
		return &Wait{WaitNoCommit, "", "no commit has been seen yet"}
	case s.Commit != s.Applied && !s.allSuspended():
		return &Wait{WaitCompiling, s.Commit, fmt.Sprintf("commit %s is being compiled", model.ShortCommit(s.Commit))}
	}
	return nil
}

// allSuspended reports whether no commit is applied since the whole cell is suspended.
func (s *Status) allSuspended() bool {
	for i := range s.Suspended {
		if s.Suspended[i].All() {
			return true
		}
	}
	return false
}
