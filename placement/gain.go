package placement

import (
	"slices"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/placement/mix"
)

// Gain is a move of a task that makes room, and how much.
type Gain struct {
	To string
	// Worth is what there is more room for then: of the typical asks of the cell those that fit,
	// each as often as it does and by its share of all. Weights.Room weighs the same when a task
	// is placed. The mean ask has about the number of dimensions that are asked for.
	Worth float32
}

// IsSteady reports whether the cell is, see Weights: then BestMove can find moves. What is
// typical of the cell is known after that, also before the first pass.
func (s *Snapshot) IsSteady() bool {
	s.merge()
	s.sense()
	s.learn(map[mix.Shape]int{}, 0)
	return s.typical.Steady
}

// BestMove returns the machine to which a task would have to move for the cell to have the most
// room for what is typically asked of it; false if no move makes more room than there is. That
// machine has room for the task while it still is where it is, the job is spread no worse there,
// and the task's preferences and packages are served no worse. The ask is the task's, and nothing
// is moved.
func BestMove(s *Snapshot, a Ask, from string) (best Gain, ok bool) {
	was, known := s.slots.Get(from)
	if !known || !s.typical.Steady {
		return Gain{}, false
	}
	c := s.single(&a)
	id := s.find(taskKey{c.job, int32(a.Name.Index), was, a.Generation})
	if id < 0 {
		return Gain{}, false
	}
	leaves := s.worthWithout(s.tasks.At(id)) - s.rows.At(was).worth
	for slot := range s.nodes.Len() {
		if slot == was || leaves <= best.Worth || s.check(c, slot) != fine {
			continue
		}
		n := s.nodes.At(slot)
		worth := leaves - s.lessWorth(c, n, s.rows.At(slot))
		if worth > best.Worth || ok && worth == best.Worth && n.Name < best.To {
			if s.suitsAsWell(c, id, slot) {
				best, ok = Gain{n.Name, worth}, true
			}
		}
	}
	return best, ok
}

// worthWithout returns what is free on the machine of a task is worth once that has gone.
func (s *Snapshot) worthWithout(t *task) float32 {
	n, r := s.nodes.At(t.slot), s.rows.At(t.slot)
	var free [dims]int64
	for d := range free {
		free[d] = max(r.byReserv[d]+t.reserv[d], 0)
	}
	devices, whole := n.devices, r.devices
	if len(t.devices) > 0 {
		devices = slices.Clone(devices)
		device.Give(devices, t.devices)
		for _, u := range t.devices {
			whole += int32(u.Milli)
		}
	}
	worth, _ := s.typical.Value(&free, devices, whole, s.typical.All())
	return worth
}

// suitsAsWell reports whether a task of a class could as well be on another machine, as far as
// what stands above packing is concerned.
func (s *Snapshot) suitsAsWell(c *class, id, to int32) bool {
	t := s.tasks.At(id)
	stays, is := s.companyOf(c, t.slot), s.companyOf(c, to)
	is.onMachine++ // the task itself, which is among those that stay
	if domains := s.layoutFor(s.spreadOf(c.ask)).Column.At; domains[to] != domains[t.slot] {
		is.inDomain++
	}
	var before, after Terms
	s.rate(c, t.slot, &before)
	s.rate(c, to, &after)
	return !stays.less(is) && after.Packages+after.Wish+after.Affinity >= before.Packages+before.Wish+before.Affinity &&
		s.leavesEven(c, t.slot, to, 1) && !s.isNeeded(t.profile, id, t.slot, to)
}
