package control

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// holdKept is for how long the record of a task says at least that a machine is held for it: a
// chunk is written for that once a minute at most for each task, whatever becomes of the
// others.
const holdKept = time.Minute

// holding is the machines that are held for tasks which have waited long.
type holding struct {
	pending []*placement.Ask // those that got no place, as they were asked of placement
	held    map[schema.TaskName]placement.Decision
	asks    map[schema.TaskName]*placement.Ask // of those in held
	changes int                                // of the cell, before placement was asked
}

// begin says that placement is about to decide, with so many changes of the cell before.
func (h *holding) begin(changes int) {
	if h.held == nil {
		h.held, h.asks, h.changes = map[schema.TaskName]placement.Decision{}, map[schema.TaskName]*placement.Ask{}, changes
	}
}

// refused takes the decision about a task that has found no room.
func (h *holding) refused(d *placement.Decision, a *placement.Ask) {
	if a.Held == "" && a.Waited < placement.DefaultReserveAfter && a.Together == 0 && a.Gang == nil { // of these another one may have waited
		return
	}
	h.pending = append(h.pending, a)
	if d.Why.Held != "" {
		h.held[d.Name], h.asks[d.Name] = *d, a
	}
}

// holdsFrom returns what has machines held in a snapshot from a task, for the tasks that they are held
// for: all but those that get their first places beside that one.
func (s *scheduler) holdsFrom(task schema.TaskName) func(*placement.Snapshot) {
	h := &s.holding
	return func(machines *placement.Snapshot) {
		for _, name := range slices.SortedFunc(maps.Keys(h.held), schema.TaskName.Compare) {
			if a := h.asks[name]; !a.With(task.JobName) || facts.HadPlace(s.Task(name)) {
				d := h.held[name]
				machines.Hold(a, &d)
			}
		}
	}
}

// hold stores which machines are held for tasks that stay pending, as is right after all
// that the step has decided: the next one that comes finds the same.
func (s *scheduler) hold() {
	h := &s.holding
	if len(h.pending) == 0 {
		return
	}
	held := h.held
	if s.cell.Changes() != h.changes {
		held = s.holdAgain()
	}
	for _, a := range h.pending {
		name := a.Name
		d, holds := held[name]
		if _, did := h.held[name]; !holds && !did && a.Held == "" && a.HeldSince.IsZero() {
			continue // nothing was held for it, and nothing is
		}
		why, pending := s.why[name]
		if !pending {
			continue
		}
		if was := h.held[name].Why; was.Held != d.Why.Held || !was.Room.Equal(d.Why.Room) {
			s.another() // others may have what is not held any more, or have gone before there is room
		}
		why.Held, why.Holds, why.Room = d.Why.Held, d.Why.Holds, d.Why.Room
		s.bookCell(s.At(d.RoomUntil))
		s.why[name] = s.keepHeld(name, why)
	}
}

// holdAgain returns which machines are held for the tasks that are still pending.
func (s *scheduler) holdAgain() map[schema.TaskName]placement.Decision {
	var asks []*placement.Ask
	for _, a := range s.holding.pending {
		_, pending := s.why[a.Name]
		if _, claims := s.claims[a.Name]; pending && !claims {
			asks = append(asks, a)
		}
	}
	held := map[schema.TaskName]placement.Decision{}
	for _, d := range placement.Holds(s.cell.Snapshot(), asks) {
		held[d.Name] = d
	}
	return held
}

// keepHeld remembers which machine is held for a task that stays pending, and says in the
// reason since when.
func (s *scheduler) keepHeld(task schema.TaskName, why placement.Why) placement.Why {
	t := schema.TaskRecord{Index: task.Index}
	if was := s.Task(task); was != nil {
		t = *was
	}
	if t.Held == nil && why.Held == "" {
		return why
	}
	next := &schema.HeldFor{Machine: why.Held, Since: s.Now, Until: why.Room}
	switch was := t.Held; {
	case was == nil:
	case was.Machine != why.Held:
		if kept := was.Since.Add(holdKept); s.Now.Before(kept) {
			s.bookCell(s.At(kept))
			return why
		}
		if why.Held == "" {
			next = nil
		}
	default:
		why.HeldSince = was.Since
		if !was.Until.IsZero() || why.Room.IsZero() {
			return why
		}
		next.Since = was.Since
	}
	if was := t.Held; next != nil && (was == nil || was.Machine != next.Machine) {
		s.another() // what is behind it may go from now on
	}
	if t.Held = next; next != nil {
		why.HeldSince = next.Since
	}
	s.Set(task.JobName, t)
	return why
}
