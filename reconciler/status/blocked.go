package status

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Blocker is one thing that keeps the cell, or a part of it, from Converged and
// does not end by itself: a person has to act.
type Blocker struct {
	Kind BlockerKind `json:"kind"`
	// Name is the job (user/job), the directory, the guard or the suspension that
	// it is of; it is left out of a commit that cannot be read.
	Name    string `json:"name,omitempty"`
	Message string `json:"message"` // as in Waiting
	Next    string `json:"next"`    // the command to type, or what to do
	// Until is when it may end by itself all the same; zero: never.
	Until time.Time `json:"until,omitzero"`
}

// BlockerKind is a word for what a person has to act on.
type BlockerKind string

// The kinds.
const (
	BlockedUnread    BlockerKind = "unread"    // nothing of the newest commit could be read
	BlockedStale     BlockerKind = "stale"     // a directory keeps its last good version
	BlockedHeld      BlockerKind = "held"      // removals wait for leave
	BlockedRejected  BlockerKind = "rejected"  // the newest version of a job is not admitted
	BlockedSuspended BlockerKind = "suspended" // something waits for the end of a suspension
	BlockedCanary    BlockerKind = "canary"    // a canary waits for a commit that promotes it
	BlockedRollout   BlockerKind = "rollout"   // a rollout has failed
	BlockedRestart   BlockerKind = "restart"   // one that somebody asked for has failed
)

// AllBlocked reports whether s waits for something, and for nothing but what a person has to
// act on: time alone changes nothing.
func (s *Status) AllBlocked() bool {
	if len(s.Blocked) == 0 || s.Source != "" || len(s.Waits) > 0 || len(s.Losses) > 0 || len(s.Pending) > 0 {
		return false
	}
	acts := map[string]bool{} // jobs that a person has to act on
	for i := range s.Blocked {
		if !s.Blocked[i].Until.IsZero() {
			return false
		}
		acts[s.Blocked[i].Name] = true
	}
	for i := range s.Rejected {
		if s.Rejected[i].Machines {
			return false
		}
	}
	return !slices.ContainsFunc(s.Jobs, func(j JobStatus) bool {
		failed := slices.ContainsFunc(j.Restarting, func(x RestartStatus) bool { return x.Failed != "" })
		return j.Reason != "" && !acts[j.Name] && !failed
	})
}

// blockers returns what of s a person has to act on; of directories, those that
// counts picks.
func (s *Status) blockers(counts func(dir string) bool) []Blocker {
	out := []Blocker{}
	if s.Unread != nil {
		out = append(out, Blocker{Kind: BlockedUnread, Message: s.Unread.waiting(), Next: s.Unread.Next})
	}
	for i := range s.Stale {
		if p := &s.Stale[i]; counts(p.Dir) {
			out = append(out, Blocker{Kind: BlockedStale, Name: p.Dir, Message: p.waiting(), Next: p.Next})
		}
	}
	for i := range s.Held {
		h := &s.Held[i]
		out = append(out, Blocker{Kind: BlockedHeld, Name: h.Name.String(), Message: h.Waiting(), Next: h.Next})
	}
	for i := range s.Rejected {
		if r := &s.Rejected[i]; !r.Machines {
			out = append(out, Blocker{Kind: BlockedRejected, Name: r.Job, Message: r.waiting(), Next: r.Next, Until: r.Until})
		}
	}
	for i := range s.Suspended {
		if x := &s.Suspended[i]; x.Waits != "" {
			out = append(out, Blocker{Kind: BlockedSuspended, Name: x.Name, Message: x.waiting(), Next: x.Next, Until: x.Until})
		}
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		for _, x := range j.Restarting {
			if x.Failed != "" && j.Reason != "" {
				out = append(out, Blocker{Kind: BlockedRestart, Name: x.Name, Message: fmt.Sprintf("job %s: %s", j.Name, x.Message), Next: x.Next})
			}
		}
		if j.Reason == "" || j.Rollout == nil || j.Rollout.Next == "" {
			continue
		}
		b := Blocker{Kind: BlockedRollout, Name: j.Name, Message: fmt.Sprintf("job %s: %s", j.Name, j.Rollout.Message), Next: j.Rollout.Next}
		if j.Rollout.State == RolloutWaiting {
			b.Kind = BlockedCanary
		}
		out = append(out, b)
	}
	return out
}

// nextOfRollout returns what to type about a rollout that waits for somebody, ""
// for one that goes on by itself.
func nextOfRollout(name schema.JobName, state RolloutState) string {
	promote := fmt.Sprintf("git commit --allow-empty -m %q --trailer %q", "promote "+name.Short(), schema.PromoteTrailer+": "+name.Short())
	switch state {
	case RolloutWaiting:
		return promote
	case RolloutPaused:
		return fmt.Sprintf("muster why %s; then commit a correction, revert, or continue anyway: %s", name.Short(), promote)
	case RolloutReturned:
		return fmt.Sprintf("muster why %s; then commit a correction, or revert", name.Short())
	}
	return ""
}
