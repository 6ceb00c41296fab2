package control

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/schema"
)

// What is placed goes where it leaves the most room for what a cell is typically asked for. In
// a cell that has run for long what was best then is not any more: others have gone. So running
// tasks are moved, few, where the same measure says that a move makes room: what stays for long,
// since that is as long as the move is worth something.

const (
	// packEvery is the time between two looks, and packLooks for how long one can be.
	packEvery = 10 * time.Minute
	packLooks = repairLooks
	// packAfter is how long a task must have been where it is to be moved: what has been there
	// for a day will likely be for another one.
	packAfter = 24 * time.Hour
	// packShare is how many tasks of a cell were moved within a day, in percent, whatever for,
	// when none is moved for packing. One always may be.
	packShare = 2
	// packLeast is how much room a move must make, see placement.Gain.
	packLeast = 0.5
	// packChecks is how many times a machine may be looked at in a look: some hundredths of a
	// second. Where that does not suffice for all tasks, a look begins at another machine each time.
	packChecks = 1 << 18
)

// packing moves tasks to make room for what may come.
type packing struct {
	pass
	search holeSearch
	moves  *moves
}

// improve makes the moves that make the most room, if it is time to look. What waits comes
// first: holes has had its turn.
func (s *packing) improve() {
	if len(s.Up()) < 2 {
		return
	}
	began := s.Now.Truncate(packEvery)
	s.bookCell(s.At(began.Add(packEvery)))
	if !s.Now.Before(began.Add(packLooks)) || s.moves.bounds.moving > 0 {
		return
	}
	left := s.left()
	if left < 1 || !s.search.cell.Snapshot().IsSteady() {
		return
	}
	search := rebalance.Search{
		Snapshot: s.search.cell.Snapshot(), Moves: left, Checks: packChecks,
		May: func(t *placement.Task, _ []rebalance.Move) (placement.Ask, bool) {
			return s.search.movable(t, packAfter, packAfter)
		},
	}
	list := search.Better(s.Up(), turnAt(began), packLeast)
	for _, b := range list {
		if why, _ := s.moves.bounds.refuse(1); why != "" || s.moves.bounds.crowded(1) != "" {
			return
		}
		s.moves.move(b.Task.JobName, *s.Task(b.Task), schema.Cause{
			To: b.To, Message: fmt.Sprintf("moves to %s, so that the cell has more room for what it is typically asked for", b.To),
		})
	}
}

// left is how many tasks may still be moved today.
func (s *packing) left() int {
	tasks := 0
	for _, name := range s.Base.JobNames() {
		tasks += len(s.Tasks(name))
	}
	return max(1, tasks*packShare/100) - s.moves.bounds.today()
}

// turnAt returns a number that differs from look to look.
func turnAt(t time.Time) int {
	h := fnv.New32a()
	h.Write([]byte(t.UTC().Format(time.RFC3339))) // never fails
	return int(h.Sum32() >> 1)
}
