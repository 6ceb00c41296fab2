package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Running tasks are moved to make the cell better: for the spread of their jobs, see
// repair, to make room for tasks that wait, see holes, and for those that may come, see
// packing, and so that machines are empty, see emptying. The cell bounds how many are
// moved within an hour, and when. The cause of a move names the machine that the task
// moves to: room is kept for it there from when it is stopped.

// moveSpan is the time that a move counts towards the bound of the cell, and moveDay that for
// which it counts towards that of packing.
const (
	moveSpan = time.Hour
	moveDay  = 24 * time.Hour
)

// moveShare is how many tasks of the cell are moved at once, in percent of its machines.
// One always may be.
const moveShare = 5

// moveBounds say what moves wait for that a cell as a whole bounds.
type moveBounds struct {
	*facts.Facts
	holding  []LossHold
	draining map[string]*Draining
	moving   int                // tasks of the cell that are stopping to be moved
	moved    []schema.Disrupted // within an hour, oldest first
	earlier  []schema.Disrupted // within a day, but not within an hour
}

func newMoveBounds(f *facts.Facts) *moveBounds {
	s := &moveBounds{Facts: f}
	for _, d := range f.Base.Moves.Moves {
		d.At = f.Past(d.At)
		s.count(d, f.Now)
	}
	return s
}

// count takes moves into account that are younger than those before them.
func (s *moveBounds) count(d schema.Disrupted, now time.Time) {
	switch {
	case now.Before(d.At.Add(moveSpan)):
		s.moved = append(s.moved, d)
	case now.Before(d.At.Add(moveDay)):
		s.earlier = withinHour(s.earlier, d)
	}
}

// refuse says why no so many tasks are moved now, "" if they may be.
func (s *moveBounds) refuse(n int) (why string, until facts.Until) {
	if len(s.holding) > 0 {
		return s.holding[0].Reason, until
	}
	for _, machine := range slices.Sorted(maps.Keys(s.draining)) {
		if s.draining[machine].Left > 0 {
			return fmt.Sprintf("machine %s is being drained", machine), until
		}
	}
	policy := s.Desired.Policy.Moves()
	if end, quiet := policy.Quiet.Within(s.Now); quiet {
		return fmt.Sprintf("the cell is to be quiet until %s (rebalance.quiet)", s.Say(end)), s.At(end)
	}
	if policy.MovesPerHour == 0 {
		return "the cell moves no tasks (rebalance.movesPerHour is 0)", until
	}
	spent := sumOf(s.moved)
	if spent+n <= policy.MovesPerHour {
		return "", until
	}
	why = fmt.Sprintf("%s %s moved within the last hour, and the cell moves at most %d (rebalance.movesPerHour)", schema.Count(spent, "task"), schema.Verb(spent, "was", "were"), policy.MovesPerHour)
	if spent > 0 {
		next := s.moved[0].At.Add(moveSpan)
		why += ": the first of them counts until " + s.Say(next)
		until = s.At(next)
	}
	return why, until
}

// today is how many tasks were moved within a day.
func (s *moveBounds) today() int { return sumOf(s.moved) + sumOf(s.earlier) }

func sumOf(list []schema.Disrupted) (tasks int) {
	for _, d := range list {
		tasks += d.Tasks
	}
	return tasks
}

// withinHour adds d, the last, to a list of moves of which only the hour matters: they count
// from the last of the hour, so never for too short a time.
func withinHour(list []schema.Disrupted, d schema.Disrupted) []schema.Disrupted {
	if n := len(list); n > 0 && list[n-1].At.Truncate(time.Hour).Equal(d.At.Truncate(time.Hour)) {
		list[n-1] = schema.Disrupted{At: d.At, Tasks: list[n-1].Tasks + d.Tasks}
		return list
	}
	return append(list, d)
}

// crowded says that others move first, "" if so many may move beside them.
func (s *moveBounds) crowded(n int) string {
	if s.moving > 0 && s.moving+n > s.atOnce() {
		return "tasks of other jobs move first"
	}
	return ""
}

// left is how many tasks may be moved now.
func (s *moveBounds) left() int {
	return max(0, min(s.atOnce()-s.moving, s.Desired.Policy.Moves().MovesPerHour-sumOf(s.moved)))
}

// atOnce is how many tasks of the cell are moved at once.
func (s *moveBounds) atOnce() int { return max(1, len(s.Machines())*moveShare/100) }

// moves moves tasks.
type moves struct {
	pass
	budget disruption
	bounds *moveBounds
	keep   func(snapshot.On) // room on the machine that a task moves to, see scheduler.keepPlace
}

// setRight has the record of moves stored without times that a clock wrote down which was
// ahead.
func (s *moves) setRight() {
	if list := s.Base.Moves.Moves; len(list) > 0 && list[len(list)-1].At.After(s.Now) {
		s.store()
	}
}

// move has a task placed again, on a machine that the cause names, if the budget of its job
// allows that now, and reports whether it does.
func (s *moves) move(job schema.JobName, t schema.TaskRecord, cause schema.Cause) bool {
	cause.Kind, cause.At = schema.CauseRebalance, s.Now
	if s.budget.disrupt(job, t, cause) != "" {
		return false
	}
	s.keep(snapshot.On{Task: job.Task(t.Index), Machine: cause.To}) // others may move in this step, too
	s.bounds.moving++
	s.bounds.moved = withSpent(s.bounds.moved, schema.Disrupted{At: s.Now, Tasks: 1})
	s.store()
	return true
}

func (s *moves) store() {
	all := slices.Concat(s.bounds.earlier, s.bounds.moved)
	if len(all) == 0 {
		s.Delete(model.KeyMoves)
		return
	}
	s.Put(model.KeyMoves, &schema.MovesRecord{Moves: all})
}
