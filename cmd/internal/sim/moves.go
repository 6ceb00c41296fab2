package sim

import (
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// holeAfter is how long a task waits at least before others are moved to make room for it,
	// and holeAgain for how long none of these is moved for another one.
	holeAfter = 5 * time.Minute
	holeAgain = time.Hour
)

// move is a running task that a step has stopped so that it goes to another machine.
type move struct {
	task schema.TaskName
	was  *schema.TaskRecord
	is   *schema.TaskRecord
}

// movesSince returns the moves of a step; those into the alloc that a task belongs in are not
// among them.
func (w *World) movesSince(before snap) (list []move) {
	for name, c := range w.master.state.Chunks {
		if before[name] == c {
			continue
		}
		for i := range c.Tasks {
			r, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			was := before.record(task)
			if r.Stop != nil && r.Stop.Kind == schema.CauseRebalance && r.Alloc == nil && (was == nil || was.Stop == nil) {
				list = append(list, move{task, was, r})
			}
		}
	}
	slices.SortFunc(list, func(a, b move) int { return a.task.Compare(b.task) })
	return list
}

// checkMove: a task moves to another machine, on which there is room for all that the step
// moves there while they still run where they are; what makes room for one that waits does so for
// one that has waited for long, of its band or a higher one, on a machine that is held for
// nobody else, and has not moved for another one within an hour. now is what the master's clock
// said.
func (w *World) checkMove(m *move, all []move, now time.Time) {
	to := m.is.Stop.To
	if to == "" || to == m.is.Machine || w.named(to) == nil {
		w.violate("task %s moves from %s to %q", m.task, m.is.Machine, to)
		return
	}
	if used := w.usedWith(to, all); !used.Fits(w.named(to).info().Capacity) {
		w.violate("task %s moves to %s, which has no room for it: %+v would be there", m.task, to, used)
	}
	if m.is.Stop.By == "" {
		w.checkEmptied(m, now)
		return
	}
	by, err := schema.ParseTaskName(cellName + "/" + m.is.Stop.By)
	if err != nil {
		w.violate("task %s moves for %q", m.task, m.is.Stop.By)
		return
	}
	w.checkMovesFor(m, by, now)
	for _, c := range m.is.Causes {
		if c.Kind == schema.CauseRebalance && !c.At.After(now) && now.Sub(c.At) < holeAgain {
			w.violate("task %s moves for %s, and it was moved %s ago", m.task, by, now.Sub(c.At))
		}
	}
}

// usedWith returns what a machine holds, with all that moves there.
func (w *World) usedWith(machine string, moves []move) (used schema.Resources) {
	s := w.master.state
	take := func(r *schema.TaskRecord) { used = used.Add(s.Data[r.Data].Task.Resources.Resources) }
	for _, c := range s.Chunks {
		for i := range c.Tasks {
			if r := &c.Tasks[i]; r.Machine == machine && r.Alloc == nil && !w.dead(machine, r.Generation) {
				take(r)
			}
		}
	}
	for i := range moves {
		if moves[i].is.Stop.To == machine {
			take(moves[i].is)
		}
	}
	return used
}

// checkMovesFor holds a move against the task that it makes room for.
func (w *World) checkMovesFor(m *move, by schema.TaskName, now time.Time) {
	s := w.master.state
	j := s.Jobs[by.JobName]
	if j == nil || s.Data[j.Admitted] == nil {
		w.violate("task %s moves for %s, which is not wanted", m.task, by)
		return
	}
	r := w.oracle.record(by)
	if r != nil && r.Machine != "" {
		w.violate("task %s moves for %s, which has a place on %s", m.task, by, r.Machine)
	}
	since := j.AskedSince(by.Index)
	if r != nil && len(r.Causes) > 0 {
		since = later(since, r.Causes[len(r.Causes)-1].At)
	}
	if waited := now.Sub(since); waited < holeAfter && !since.After(now) {
		w.violate("task %s moves for %s, which has waited for %s", m.task, by, waited)
	}
	want, moved := s.Data[j.Admitted].Priority, s.Data[m.is.Data].Priority
	if floor, _ := want.Band().Floor(); moved > floor && moved.Band() != want.Band() {
		w.violate("task %s of priority %d moves for %s of priority %d", m.task, moved, by, want)
	}
	for task, why := range w.master.last.Why {
		other := s.Jobs[task.JobName]
		if task == by || why.Held != m.is.Machine || w.oracle.waits[task].Held != why.Held || other == nil {
			continue // it may be held since the step moved it, or was held until then
		}
		if s.Data[other.Admitted].Priority >= want {
			w.violate("task %s moves away from %s for %s, and that is held for %s", m.task, m.is.Machine, by, task)
		}
	}
}
