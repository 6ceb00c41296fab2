package rebalance

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Move is a task that goes to another machine.
type Move struct {
	Task     schema.TaskName
	From, To string
}

// Hole is room for a task that there is once others have moved.
type Hole struct {
	For     schema.TaskName
	Machine string // on which it is
	// Moves are few, and in an order in which each has room at its destination once those
	// before it are done. Those from Machine are the last.
	Moves []Move
}

// Search says where holes are looked for.
type Search struct {
	Snapshot *placement.Snapshot
	// May reports whether a task may be moved, and what it then asks for, given the moves
	// that come before. Tasks that are stopping, allocs, tasks inside these and those that
	// have places together are not asked about.
	May func(t *placement.Task, before []Move) (placement.Ask, bool)
	// Moves is how many moves a hole may take.
	Moves int
	// Machines is how many machines are looked at for each ask, those that lack the least;
	// 0 is all.
	Machines int
	// Checks is how many times a machine may be looked at; 0 is any number. A search that
	// has used them up finds nothing.
	Checks int
}

// Hole finds a hole for an ask that takes the fewest moves; false if it finds none. Room
// that is there already is a hole without moves. A task moves only where its job is
// spread no worse than before. What stands in the way may be moved itself, within Moves.
func (s Search) Hole(a placement.Ask) (Hole, bool) {
	h := hunt{Search: s, checks: s.Checks}
	roots := h.near(s.Snapshot, a, "")
	for n := range s.Moves + 1 {
		for i := range roots {
			if h.makeRoom(s.Snapshot, &a, roots[i].Machine, n, func(*placement.Snapshot, int) bool { return true }) {
				return Hole{For: a.Name, Machine: roots[i].Machine, Moves: h.moves}, true
			}
		}
	}
	return Hole{}, false
}

// hunt is a search at work.
type hunt struct {
	Search
	checks int
	moves  []Move // that have led to the snapshot at hand
}

// near asks for the machines near an ask, and counts that.
func (h *hunt) near(s *placement.Snapshot, a placement.Ask, from string) []placement.Near {
	h.checks -= s.Len()
	return placement.Nearest(s, a, from, h.Machines)
}

// exhausted reports whether there is no more to look.
func (h *hunt) exhausted() bool { return h.Checks > 0 && h.checks <= 0 }

// then goes on with a snapshot in which something has room, and so many moves left.
type then func(s *placement.Snapshot, left int) bool

// makeRoom has a machine have room for an ask by so many moves at most, and goes on; it
// reports false if there is no way.
func (h *hunt) makeRoom(s *placement.Snapshot, a *placement.Ask, machine string, left int, goOn then) bool {
	is, ok := placement.NearOn(s, *a, machine)
	switch {
	case !ok:
		return false
	case is.Room:
		return goOn(s, left)
	case left == 0 || h.exhausted():
		return false
	}
	for _, t := range useful(placement.TasksOn(s, machine), a, is.Lack, left) {
		if h.moveAway(s, &t, left, func(s *placement.Snapshot, left int) bool { return h.makeRoom(s, a, machine, left, goOn) }) {
			return true
		}
	}
	return false
}

// moveAway has a task leave its machine, where the room for it may take moves of its own,
// and goes on.
func (h *hunt) moveAway(s *placement.Snapshot, t *placement.Task, left int, goOn then) bool {
	ask, ok := h.May(t, h.moves)
	if !ok {
		return false
	}
	without := s.Fork()
	without.RemoveTask(t.Name, t.Machine, t.Generation)
	places := h.near(without, ask, t.Machine)
	without.Release()
	for i := range places {
		to := places[i].Machine
		if !places[i].Room && left < 2 || h.exhausted() {
			return false // those with room come first
		}
		if h.makeRoom(s, &ask, to, left-1, func(s *placement.Snapshot, left int) bool {
			return h.move(s, &ask, Move{t.Name, t.Machine, to}, left, goOn)
		}) {
			return true
		}
	}
	return false
}

// move does a move, and goes on.
func (h *hunt) move(s *placement.Snapshot, a *placement.Ask, m Move, left int, goOn then) bool {
	next := s.Fork()
	defer next.Release()
	if !placement.Move(next, *a, m.From, m.To) {
		return false
	}
	n := len(h.moves)
	h.moves = append(h.moves, m)
	if goOn(next, left) {
		return true
	}
	h.moves = h.moves[:n]
	return false
}

// useful returns the tasks of a machine of which one can be among so many that make up for
// what it lacks for an ask: lowest priority first, then what gives least. What lacks of
// ports and devices is not looked at.
func useful(tasks []placement.Task, a *placement.Ask, lack schema.Resources, left int) []placement.Task {
	gain := func(t *placement.Task) schema.Resources {
		if a.Priority.Prod() {
			return t.Limit
		}
		return t.Reservation
	}
	tasks = slices.DeleteFunc(tasks, func(t placement.Task) bool { return isBound(&t) })
	need := lack // of one, when the others are the largest
	var cpu, ram, disk []int64
	for i := range tasks {
		g := gain(&tasks[i])
		cpu, ram, disk = append(cpu, g.CPUMilli), append(ram, g.RAMBytes), append(disk, g.DiskBytes)
	}
	need.CPUMilli -= largest(cpu, left-1)
	need.RAMBytes -= largest(ram, left-1)
	need.DiskBytes -= largest(disk, left-1)
	tasks = slices.DeleteFunc(tasks, func(t placement.Task) bool { return !need.Fits(gain(&t)) })
	size := func(t *placement.Task) float64 {
		g, sum := gain(t), 0.0
		for _, x := range [][2]int64{{g.CPUMilli, lack.CPUMilli}, {g.RAMBytes, lack.RAMBytes}, {g.DiskBytes, lack.DiskBytes}} {
			if x[1] > 0 {
				sum += float64(x[0]) / float64(x[1])
			}
		}
		return sum
	}
	slices.SortStableFunc(tasks, func(a, b placement.Task) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(size(&a), size(&b)))
	})
	return tasks
}

// isBound reports whether a task is never moved by itself.
func isBound(t *placement.Task) bool {
	return t.Stopping || t.IsAlloc || t.Together || t.Alloc != (schema.TaskName{})
}

// largest returns the sum of the n largest.
func largest(of []int64, n int) (sum int64) {
	slices.Sort(of)
	for _, v := range of[max(0, len(of)-n):] {
		sum += v
	}
	return sum
}
