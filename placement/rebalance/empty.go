package rebalance

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Emptied is a machine that has none of the tasks that count once its moves are done.
type Emptied struct {
	Machine string
	// Moves are of all of them, in an order in which each has room at its destination.
	Moves []Move
}

// Emptying says which machines are emptied.
type Emptying struct {
	// Below is the share of a machine, of 1, of which tasks must have less in each resource.
	Below float64
	// Counts reports whether tasks of a job count. Those of the others stay where they are.
	Counts func(schema.JobName) bool
	// Avoid are the machines that are neither emptied nor moved to.
	Avoid []string
}

// Empty finds machines that moves leave empty, the least used first, until these are as many moves
// as Moves. All tasks of a machine that count find room on others, each of which is in use, and used more
// than it, and on which the task is as well off (see placement.FirstAsWell): those that are used
// most come first. A machine of which one task may not move, or has no such place, is left as it
// is; what moves makes no machine a candidate again, and none is moved to one that gets empty.
//
// It begins with candidate number turn, modulo their number, and ends when Checks are used up. It
// returns at how many of how many it has looked.
func (s Search) Empty(e Emptying, turn int) (list []Emptied, looked, of int) {
	x := newEmptier(s, e)
	defer x.snapshot.Release()
	least := x.order()
	moves := 0
	for looked < len(least) && moves < s.Moves && (s.Checks <= 0 || x.checks > 0) {
		m := &least[(turn+looked)%len(least)]
		looked++
		if plan, ok := x.plan(m); ok {
			list = append(list, Emptied{m.Machine, plan})
			moves += len(plan)
		}
	}
	return list, looked, len(least)
}

// Empties finds the moves that leave one machine empty, as Empty does, however much is used of it.
// If there are none, stuck is the task that may not move, with no ask, or that has no place; the
// zero value if the machine may not be emptied whatever it holds, or holds nothing but what is on its
// way to it, or stopping.
func (s Search) Empties(e Emptying, machine string) (found Emptied, stuck schema.TaskName, ok bool) {
	x := newEmptier(s, e)
	defer x.snapshot.Release()
	x.order()
	at, used := x.rank[machine]
	if !used {
		return found, stuck, false
	}
	moves, ok := x.plan(&x.used[at])
	return Emptied{machine, moves}, x.stuck, ok
}

func newEmptier(s Search, e Emptying) *emptier {
	return &emptier{Search: s, Emptying: e, snapshot: s.Snapshot.Fork(), checks: s.Checks, rank: map[string]int{}, empty: map[string]bool{}, filled: map[string]bool{}}
}

// emptier is a search for machines to empty at work.
type emptier struct {
	Search
	Emptying
	snapshot *placement.Snapshot // after the moves that were found
	checks   int
	used     []placement.Load // machines in use that may be moved to, those that are used most first
	rank     map[string]int   // in used
	empty    map[string]bool  // machines that moves leave empty
	filled   map[string]bool  // machines that get what moves
	stuck    schema.TaskName  // that kept the last machine from being emptied
}

// order returns the machines that may be emptied, the least used first.
func (x *emptier) order() (least []placement.Load) {
	loads := placement.Loads(x.snapshot, x.Counts)
	x.checks -= len(loads)
	loads = slices.DeleteFunc(loads, func(l placement.Load) bool { return l.Tasks == 0 || slices.Contains(x.Avoid, l.Machine) })
	slices.SortFunc(loads, func(a, b placement.Load) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(b.Machine, a.Machine))
	})
	x.used = loads
	for i, l := range loads {
		x.rank[l.Machine] = i
		if l.Used < x.Below && l.Claims == 0 {
			least = append(least, l)
		}
	}
	slices.Reverse(least)
	return least
}

// plan finds the moves that empty a machine, and does them in its snapshot; false if there are
// none that do.
func (x *emptier) plan(m *placement.Load) (moves []Move, ok bool) {
	if x.filled[m.Machine] {
		return nil, false
	}
	asks, ok := x.movable(m)
	if !ok || len(asks) == 0 {
		return nil, false
	}
	fork := x.snapshot.Fork()
	for i := range asks {
		to, found := x.place(fork, asks[i], m.Machine)
		if !found {
			fork.Release()
			x.stuck = asks[i].Name
			return nil, false
		}
		moves = append(moves, Move{asks[i].Name, m.Machine, to})
	}
	fork.Release()
	x.empty[m.Machine] = true
	for i, move := range moves {
		x.filled[move.To] = true
		placement.Move(x.snapshot, asks[i], move.From, move.To)
	}
	return moves, true
}

// movable returns what the tasks of a machine ask for that count and are not leaving anyway;
// false if one of them may not move.
func (x *emptier) movable(m *placement.Load) (asks []placement.Ask, ok bool) {
	stay := m.Tasks // until it is known that they go
	for _, t := range placement.TasksOn(x.snapshot, m.Machine) {
		if !x.Counts(t.Name.JobName) {
			continue
		}
		if stay--; t.Stopping {
			continue
		}
		if x.checks--; isBound(&t) {
			x.stuck = t.Name
			return nil, false
		}
		ask, may := x.May(&t, nil)
		if !may {
			x.stuck = t.Name
			return nil, false
		}
		asks = append(asks, ask)
	}
	for i := range asks { // so that all forks know the domains over which the job is spread
		placement.NearOn(x.snapshot, asks[i], m.Machine)
	}
	// The largest first: what is small finds room in what these leave.
	slices.SortStableFunc(asks, func(a, b placement.Ask) int {
		return cmp.Or(cmp.Compare(b.Limit.CPUMilli, a.Limit.CPUMilli), cmp.Compare(b.Limit.RAMBytes, a.Limit.RAMBytes), a.Name.Compare(b.Name))
	})
	return asks, stay == 0
}

// place has a task move to the machine that is used most of those on which it is as well off.
func (x *emptier) place(s *placement.Snapshot, a placement.Ask, from string) (to string, ok bool) {
	machines := x.used[:x.rank[from]]
	for len(machines) > 0 {
		i := placement.FirstAsWell(s, a, from, machines)
		x.checks -= min(i+1, len(machines))
		if i == len(machines) {
			return "", false
		}
		if to = machines[i].Machine; !x.empty[to] && placement.Move(s, a, from, to) {
			return to, true
		}
		machines = machines[i+1:]
	}
	return "", false
}
