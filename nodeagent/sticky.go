package nodeagent

import (
	"path"
	"strconv"
	"time"

	"github.com/musterhq/muster/schema"
)

// KeepSticky is how long a sticky directory stays on a machine that its task has
// left: long enough for a job that was removed by mistake to come back. A disk that
// is short is a reason to remove it before, but only when nothing else is left to
// remove: no task has to stop for it.
const KeepSticky = 24 * time.Hour

// StickyPath returns where the sticky directory of task is kept, with what is
// remembered of it, relative to the state directory. The task has StickyData in
// it.
func StickyPath(task schema.TaskName) string {
	return path.Join("sticky", task.Cell, task.User, task.Job, strconv.Itoa(task.Index))
}

// StickyData is the directory that the task itself sees.
const StickyData = "data"

// Sticky is a sticky directory on this machine.
type Sticky struct {
	Task schema.TaskName
	// Idle is since when the task is not here any more; zero while it is.
	Idle time.Time
}

// StickyKind is what shall become of a sticky directory.
type StickyKind string

// The kinds. What is remembered is on disk before the next decision.
const (
	Leave  StickyKind = "leave"  // remember that its task is not here since now
	Return StickyKind = "return" // forget that
	Drop   StickyKind = "drop"   // remove it
)

// StickyAction is one thing to do to one sticky directory.
type StickyAction struct {
	Kind StickyKind
	Task schema.TaskName
}

// stickyPlan is what becomes of the sticky directories.
type stickyPlan struct {
	actions []StickyAction
	// idlest is, of those that stay though their tasks are not here, the one that has
	// for longest; nil: none does.
	idlest *Sticky
	wake   time.Time // when the next is to be dropped; zero: never
}

// planSticky decides for the sticky directories; items are all that there are.
func planSticky(dirs []Sticky, items []item, now time.Time) stickyPlan {
	var p stickyPlan
	if len(dirs) == 0 {
		return p
	}
	here := map[schema.TaskName]bool{}
	for _, it := range items {
		if it.held != nil && it.held.Alive() || it.assigned != nil && it.assigned.Stop == nil && it.job().Task.Sticky.Has() {
			here[it.task] = true
		}
	}
	for _, s := range dirs {
		act := func(kind StickyKind) { p.actions = append(p.actions, StickyAction{kind, s.Task}) }
		switch {
		case here[s.Task] && !s.Idle.IsZero():
			act(Return)
		case here[s.Task]:
		case s.Idle.IsZero(), s.Idle.After(now): // the clock was set back: count again
			act(Leave)
		case due(now, s.Idle, KeepSticky).After(now):
			p.wake = earlier(p.wake, due(now, s.Idle, KeepSticky))
			if p.idlest == nil || s.Idle.Before(p.idlest.Idle) {
				p.idlest = &s
			}
		default:
			act(Drop)
		}
	}
	return p
}
