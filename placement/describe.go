package placement

import (
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Names returns how many names the snapshot knows: of jobs, of what tasks of a job relate to,
// of packages, of devices' kinds, models and attributes, and of values of attributes. It forgets none, also when nothing has it any more.
// Whoever keeps a snapshot for long makes a new one when most of them are of what has gone.
func (s *Snapshot) Names() int {
	n := int(s.jobs.Len()+s.kindred.profiles.Len()+s.kindred.terms.Len()) + s.packages.Len() + s.kinds.Len() + int(s.kinds.sets.Len())
	for _, c := range s.attributes {
		n += len(c.Values)
	}
	return n
}

// Describe says in words what the snapshot holds, a line for each machine and
// each task, sorted: two snapshots of the same cell say the same, however they
// came about. What was learnt of the cell's asks is no part of it.
func (s *Snapshot) Describe() []string {
	var out []string
	profiles := map[int32]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.slots.All())) {
		slot, _ := s.slots.Get(name)
		n, r := s.nodes.At(slot), s.rows.At(slot)
		free := make([]int16, 0, len(n.devices))
		for _, d := range n.devices {
			free = append(free, d.Free)
		}
		out = append(out, fmt.Sprintf("machine %s: state %d, free by limits %d %d %d, by reservations %d %d %d, %d ports, taken %v, devices %v, prod %d, overloaded %t, attributes %v",
			name, r.state, r.byLimit[0], r.byLimit[1], r.byLimit[2],
			r.byReserv[0], r.byReserv[1], r.byReserv[2], r.ports, n.ports.Taken, free, r.prodCPU, r.overloaded, n.Attributes))
		var tasks []string
		for id := n.first; id >= 0; id = s.tasks.At(id).nextHere {
			t := s.tasks.At(id)
			profiles[t.profile] = true
			ports := slices.Sorted(slices.Values(t.ports))
			tasks = append(tasks, fmt.Sprintf("  task %s generation %d: priority %d, limit %v, reservation %v, ports %v, devices %v, stopping %t, claim %t%s",
				schema.TaskName{JobName: s.jobs.At(t.job).name, Index: int(t.index)}, t.generation, t.priority, t.limit, t.reserv, ports, t.devices, t.stopping, t.claim, s.describeAlloc(id)))
		}
		slices.Sort(tasks)
		out = append(out, tasks...)
	}
	return append(out, s.describeRelations(profiles)...)
}

// describeRelations says what is counted for the relations of tasks that are held.
func (s *Snapshot) describeRelations(profiles map[int32]bool) []string {
	lines := map[string]bool{}
	for id := range profiles {
		if id == 0 {
			continue
		}
		for _, t := range s.kindred.profiles.At(id).ties {
			x, c := s.kindred.terms.At(t.term), s.kindred.columnOf(t.term)
			picked, repelling := map[string]int32{}, map[string]int32{}
			for v, value := range c.Values {
				if n, ok := s.kindred.picked.Get(together(t.term, int32(v))); ok {
					picked[value] = n
				}
				if n, ok := s.kindred.repelling.Get(together(t.term, int32(v))); ok {
					repelling[value] = n
				}
			}
			lines[fmt.Sprintf("%s of user %q: picks %d, %v; repels by %v", x.Text(), x.User, x.total, picked, repelling)] = true
		}
	}
	return slices.Sorted(maps.Keys(lines))
}

// describeAlloc says what is left in an alloc, or which one a task runs in.
func (s *Snapshot) describeAlloc(id int32) string {
	t := s.tasks.At(id)
	switch {
	case t.alloc != nil:
		return fmt.Sprintf(", alloc with %v free", t.alloc.free)
	case t.inAlloc >= 0:
		host := s.tasks.At(t.inAlloc)
		return fmt.Sprintf(", in %s", schema.TaskName{JobName: s.jobs.At(host.job).name, Index: int(host.index)})
	}
	return ""
}
