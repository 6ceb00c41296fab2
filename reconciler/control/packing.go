package control

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/model"
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
	// second. Where that does not suffice for all tasks, the next look goes on there, or
	// begins anywhere if something has changed.
	packChecks = 1 << 18
)

// looking is what looks at the whole cell have in common.
type looking struct {
	pass
	search  holeSearch
	moves   *moves
	waiting *scheduler
}

// packing moves tasks to make room for what may come.
type packing struct {
	looking
	kept *packed
}

// packed is what a look leaves to the next one: that no task is worth moving, as long as nothing
// changes.
type packed struct {
	sight
	began time.Time // when there was the last look
	// Of so many machines, from there on, no task is worth moving, before until has come.
	looked, turn int
	tasks        taskCount
}

// taskCount is how many tasks the jobs of a cell have, counted again for those that were written.
type taskCount struct {
	of  map[schema.JobName]int
	all int
}

// follow counts the tasks of the jobs of which documents were written; all says that any may have
// been.
func (c *taskCount) follow(s *model.State, written []schema.JobName, all bool) {
	if all || c.of == nil {
		*c = taskCount{of: map[schema.JobName]int{}}
		written = s.JobsWithChunks()
	}
	for _, name := range written {
		n := 0
		for i := range s.Span(name) {
			if chunk := s.Chunks[model.ChunkName{Job: name, Number: i}]; chunk != nil {
				n += len(chunk.Tasks)
			}
		}
		c.all += n - c.of[name]
		if c.of[name] = n; n == 0 {
			delete(c.of, name)
		}
	}
}

// follow forgets what was found out if that may be otherwise by now.
func (m *packed) follow(f *facts.Facts, reserved, turn int) {
	holds, written, all := m.sight.follow(f, reserved)
	if m.tasks.follow(f.Base, written, all); !holds {
		m.looked, m.turn = 0, turn
	}
}

// improve makes the moves that make the most room, if it is time to look. What waits comes
// first: holes has had its turn.
func (s *packing) improve() {
	up := s.Up()
	if len(up) < 2 {
		return
	}
	began := s.Now.Truncate(packEvery)
	if s.kept.follow(s.Facts, s.search.cell.Reserved(), turnAt(began)); s.kept.looked >= len(up) {
		s.bookCell(s.kept.until) // until then a look would find nothing again
		return
	}
	s.bookCell(s.At(began.Add(packEvery)))
	if !s.Now.Before(began.Add(packLooks)) || s.moves.bounds.moving > 0 {
		return
	}
	if why, _ := s.moves.bounds.refuse(1); why != "" {
		return
	}
	if began.Equal(s.kept.began) { // not at each step that comes meanwhile
		return
	}
	if s.kept.began = began; s.left() < 1 {
		return
	}
	for _, b := range s.look(up) {
		if why, _ := s.moves.bounds.refuse(1); why != "" || s.moves.bounds.crowded(1) != "" {
			return
		}
		s.moves.move(b.Task.JobName, *s.Task(b.Task), schema.Cause{
			To: b.To, Message: fmt.Sprintf("moves to %s, so that the cell has more room for what it is typically asked for", b.To),
		})
	}
}

// look finds moves, and goes on at other machines the next time if there are none.
func (s *packing) look(up []string) []rebalance.Better {
	cell := s.search.cell
	avoid, until := s.avoided()
	avoid = append(avoid, s.toEmpty()...)
	search := rebalance.Search{
		Snapshot: cell.Snapshot(), Moves: s.left(), Checks: packChecks,
		May: func(t *placement.Task, _ []rebalance.Move) (placement.Ask, bool) {
			ask, ok, changes := s.search.movable(t, packAfter, packAfter)
			if until = until.Or(changes); !ok {
				return ask, false
			}
			ask.Avoid = slices.Compact(slices.Sorted(slices.Values(slices.Concat(ask.Avoid, avoid))))
			return ask, true
		},
	}
	list, looked := search.Better(up, s.kept.turn, packLeast)
	if m := s.kept; len(list) == 0 && len(s.ChangedChunks()) == 0 {
		m.looked, m.turn, m.until = m.looked+looked, m.turn+looked, m.until.Or(until).Or(cell.Until())
		s.bookCell(m.until)
	}
	return list
}

// avoided are the machines to which no task is moved: those that are held for a task which has
// waited for long, where the one that moves would be refused, and those that have just joined.
func (s *looking) avoided() (list []string, until facts.Until) {
	for _, name := range s.search.cell.JoinedRecently() {
		list = append(list, name)
		until = until.Or(s.At(s.Base.Machines[name].Joined.Add(snapshot.UnevenFor)))
	}
	for _, d := range s.waiting.holding.held {
		list = append(list, d.Why.Held)
	}
	return list, until
}

// toEmpty are the machines that are empty, or are to be, where the cell has machines emptied: what
// moves there would be in the way of that.
func (s *packing) toEmpty() (list []string) {
	below := s.Desired.Policy.Moves().EmptyBelow
	if below == 0 {
		return nil
	}
	for _, l := range placement.Loads(s.search.cell.Snapshot(), s.counts) {
		if l.Tasks == 0 || 100*l.Used < float64(below) {
			list = append(list, l.Machine)
		}
	}
	return list
}

// counts reports whether tasks of a job keep a machine from being empty: those of system jobs do
// not.
func (s *looking) counts(name schema.JobName) bool {
	want := s.Admitted(name)
	return want == nil || want.Kind != schema.System
}

// left is how many tasks may still be moved today.
func (s *packing) left() int {
	return max(1, s.kept.tasks.all*packShare/100) - s.moves.bounds.today()
}

// turnAt returns a number that differs from look to look.
func turnAt(t time.Time) int {
	h := fnv.New32a()
	h.Write([]byte(t.UTC().Format(time.RFC3339))) // never fails
	return int(h.Sum32() >> 1)
}
