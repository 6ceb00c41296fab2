package control

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// A machine that runs little takes nearly as much power as one that runs much. Where the cell says
// so (rebalance.emptyBelow), what is on such machines moves to others that run more: all of a
// machine or nothing. Which one is being emptied is stored nowhere. It is used less with each move,
// so that it is found again by the next look; and if it is not, since the room is gone, what has
// moved is as well off where it is.

const (
	// emptyEvery is the time between two looks for machines to empty, and emptyNext that between
	// two while one is being emptied. A look is as long as one of packing at most.
	emptyEvery = packEvery
	emptyNext  = time.Minute
	// emptyAfter is how long a task must have been where it is to be moved: a machine that is
	// switched off should stay so for some hours, and what has run for an hour will likely not be
	// gone in the next. A task that was moved, whatever for, stays for emptyAgain: none is stopped
	// for power more than once a day.
	emptyAfter = time.Hour
	emptyAgain = packAfter
	// emptyChecks is how many times a machine may be looked at in a look.
	emptyChecks = packChecks
)

// emptying moves tasks so that machines are empty.
type emptying struct {
	looking
	kept   *emptied
	checks int // see emptyChecks
}

// emptied is what a look for machines to empty leaves to the next one.
type emptied struct {
	sight
	began time.Time // when there was the last look
	moves bool      // which moved tasks
	// None of the last so many machines before turn can be emptied as long as
	// nothing changes; all says that this is so of all machines.
	looked, turn int
	all          bool
}

// follow forgets what was found out if that may be otherwise by now.
func (m *emptied) follow(f *facts.Facts, reserved int) {
	if holds, _, _ := m.sight.follow(f, reserved); !holds {
		m.looked, m.all = 0, false
	}
}

// every is the time between two looks.
func (m *emptied) every() time.Duration {
	if m.moves {
		return emptyNext
	}
	return emptyEvery
}

// empty makes the moves that empty machines, as many as there may be at once, if it is time to
// look.
func (s *emptying) empty() {
	below := s.Desired.Policy.Moves().EmptyBelow
	if below == 0 || len(s.Up()) < 2 {
		*s.kept = emptied{}
		return
	}
	m := s.kept
	if m.follow(s.Facts, s.search.cell.Reserved()); m.all {
		s.bookCell(m.until) // until then a look would find nothing again
		return
	}
	every := m.every()
	began := s.Now.Truncate(every)
	s.bookCell(s.At(began.Add(every)))
	if !s.Now.Before(began.Add(packLooks)) || began.Equal(m.began) || s.moves.bounds.moving > 0 || s.unsettled() {
		return
	}
	if why, _ := s.moves.bounds.refuse(1); why != "" {
		return
	}
	m.began, m.moves = began, false
	for _, e := range s.look(below) {
		if !s.leave(&e) {
			return
		}
	}
}

// leave moves what is on a machine, and reports false if no more may move now.
func (s *emptying) leave(e *rebalance.Emptied) bool {
	for _, move := range e.Moves {
		if why, _ := s.moves.bounds.refuse(1); why != "" || s.moves.bounds.crowded(1) != "" {
			return false
		}
		if s.moves.move(move.Task.JobName, *s.Task(move.Task), schema.Cause{
			To: move.To, Message: fmt.Sprintf("moves to %s, so that %s is empty and can be switched off", move.To, move.From),
		}) {
			s.kept.moves = true // the rest goes soon
		}
	}
	return true
}

// look finds machines to empty, and goes on at other ones the next time if there are none.
func (s *emptying) look(below int) []rebalance.Emptied {
	cell := s.search.cell
	avoid, until := s.avoided()
	search := rebalance.Search{
		Snapshot: cell.Snapshot(), Moves: s.moves.bounds.left(), Checks: s.checks,
		May: func(t *placement.Task, _ []rebalance.Move) (placement.Ask, bool) {
			ask, ok, changes := s.search.movable(t, emptyAfter, emptyAgain)
			until = until.Or(changes)
			return ask, ok
		},
	}
	m := s.kept
	list, looked, of := search.Empty(rebalance.Emptying{Below: float64(below) / 100, Counts: s.counts, Avoid: avoid}, m.turn)
	if m.turn += looked; len(list) > 0 || m.turn >= of {
		m.turn = 0
	}
	if len(list) == 0 && len(s.ChangedChunks()) == 0 {
		m.looked, m.until = m.looked+looked, m.until.Or(until).Or(cell.Until())
		if m.all = m.looked >= of; m.all {
			m.turn = 0
			s.bookCell(m.until)
		}
	}
	return list
}

// Emptiable is how many machines moves could empty, see Emptiables.
type Emptiable struct {
	Machines int
	// Of so many machines with tasks of which so little is used so many were looked at, the least used first.
	Looked, Of int
}

// Emptiables returns how many machines moves could empty now of which less than so many percent is
// used, however long their tasks have been where they are, and however many moves that takes. What
// a task has is its limits: it is asked of checkpoints, which do not say what tasks use, and so not
// how much less is held back for them where that is done. It ends when it has looked at machines so many times: a million takes less than a second.
func Emptiables(f *facts.Facts, below, checks int) (out Emptiable) {
	cell := snapshot.New(f, nil)
	s := looking{pass: pass{Facts: f}, search: holeSearch{Facts: f, cell: cell}}
	search := rebalance.Search{
		Snapshot: cell.Snapshot(), Moves: schema.MaxTasks, Checks: checks,
		May: func(t *placement.Task, _ []rebalance.Move) (placement.Ask, bool) {
			ask, ok, _ := s.search.movable(t, 0, 0)
			return ask, ok
		},
	}
	list, looked, of := search.Empty(rebalance.Emptying{Below: float64(below) / 100, Counts: s.counts}, 0)
	return Emptiable{len(list), looked, of}
}

// unsettled reports whether a machine is silent that has tasks: these may need the room.
func (s *emptying) unsettled() bool {
	for name := range s.SilentMachines() {
		for _, chunk := range s.Base.ChunksOn(name) {
			if s.counts(chunk.Job) {
				return true
			}
		}
	}
	return false
}
