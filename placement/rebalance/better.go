package rebalance

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Better is a move that makes room for what is typically asked of a cell.
type Better struct {
	Move
	Worth float32 // see placement.Gain
}

// Better finds moves that make room for what is typically asked of the cell, before it is asked
// for: those that make the most, at most so many as Moves, each worth something by itself
// whichever of the others are made. They are of tasks of different jobs, on different machines.
// It looks at tasks of the machines, which are sorted by name, from the one with the number turn
// on, modulo their number, until Checks is used up, and returns at how many machines it has
// looked. It finds nothing in a cell that is not steady.
func (s Search) Better(machines []string, turn int, least float32) (list []Better, looked int) {
	if !s.Snapshot.IsSteady() {
		return nil, len(machines)
	}
	checks := s.Checks
	for looked < len(machines) && (s.Checks <= 0 || checks > 0) {
		for _, t := range placement.TasksOn(s.Snapshot, machines[(turn+looked)%len(machines)]) {
			if isBound(&t) {
				continue
			}
			a, may := s.May(&t, nil)
			if !may {
				continue
			}
			checks -= len(machines)
			if g, ok := placement.BestMove(s.Snapshot, a, t.Machine); ok && g.Worth >= least {
				list = append(list, Better{Move{t.Name, t.Machine, g.To}, g.Worth})
			}
		}
		looked++
	}
	return apart(list, s.Moves), looked
}

// apart returns the best of some moves, of which no two have a machine or a job in common.
func apart(list []Better, most int) (out []Better) {
	slices.SortFunc(list, func(a, b Better) int { return cmp.Or(cmp.Compare(b.Worth, a.Worth), a.Task.Compare(b.Task)) })
	machines, jobs := map[string]bool{}, map[schema.JobName]bool{}
	for _, b := range list {
		if len(out) == most || machines[b.From] || machines[b.To] || jobs[b.Task.JobName] {
			continue
		}
		machines[b.From], machines[b.To], jobs[b.Task.JobName] = true, true, true
		out = append(out, b)
	}
	return out
}
