package status

import (
	"fmt"
	"slices"

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
	WaitRestore   WaitKind = "restore"    // machines have yet to report after a restore
	WaitNoMachine WaitKind = "no-machine" // no machine has joined
	WaitDrain     WaitKind = "drain"      // a machine is being emptied
	WaitGone      WaitKind = "gone"       // a machine that is declared gone has tasks yet
)

// unapplied says why the newest commit is not the one applied, nil if it is, or if
// the repository or a suspension says so.
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

// waitingFor returns what keeps the cell, or a part of it, from being converged, one
// message for each: the repository, the jobs of parts, suspensions, machines. With dirs
// it is that of the jobs that these directories declare, else that of the cell.
func (s *Status) waitingFor(parts []*Part, dirs map[string]bool) []string {
	out := []string{}
	if s.Source != "" {
		out = append(out, repositoryWaits(s.Source))
	}
	out = s.messages(out, WaitNoCommit, WaitCompiling)
	if s.Unread != nil {
		out = append(out, s.Unread.waiting())
	}
	for i := range s.Stale {
		if p := &s.Stale[i]; dirs == nil || dirs[p.Dir] {
			out = append(out, p.waiting())
		}
	}
	for i := range s.Pending {
		if p := &s.Pending[i]; dirs == nil || dirs[p.Dir] {
			out = append(out, p.waiting())
		}
	}
	for i := range s.Held {
		out = append(out, s.Held[i].Waiting())
	}
	for i := range s.Rejected {
		out = append(out, s.Rejected[i].waiting())
	}
	out = s.messages(out, WaitRestore)
	for i := range s.Losses {
		if dirs == nil { // else the tasks that are unknown say so
			out = append(out, s.Losses[i].Waiting())
		}
	}
	for _, p := range parts {
		if p.waits != "" {
			out = append(out, p.waits)
		}
	}
	for i := range s.Suspended {
		if x := &s.Suspended[i]; x.Waits != "" {
			out = append(out, x.waiting())
		}
	}
	return s.messages(out, WaitDrain, WaitGone, WaitNoMachine)
}

// messages appends the messages of the waits of these kinds, in their order.
func (s *Status) messages(out []string, kinds ...WaitKind) []string {
	for i := range s.Waits {
		if slices.Contains(kinds, s.Waits[i].Kind) {
			out = append(out, s.Waits[i].Message)
		}
	}
	return out
}
