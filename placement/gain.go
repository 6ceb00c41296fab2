package placement

import (
	"slices"

	"github.com/musterhq/muster/placement/device"
)

// Gain is a move of a task that makes room, and how much.
type Gain struct {
	To string
	// Worth is what there is more room for then: of the typical asks of the cell those that fit,
	// each as often as it does and by its share of all. Weights.Room weighs the same when a task
	// is placed. The mean ask has 1 for the dimension of which all asks want most of what there is, and
	// less for the others, by how scarce they are.
	Worth float32
}

// BestMove returns the machine to which a task would have to move for the cell to have the most
// room for what is typically asked of it; false if no move makes more room than there is. That
// machine has room for the task while it still is where it is, the job is spread no worse there,
// the task's preferences and packages are served no worse, and it comes to no noise from which it is
// away (see Weights.Noise). The ask is the task's, and nothing is moved.
func BestMove(s *Snapshot, a Ask, from string) (best Gain, ok bool) {
	was, known := s.slots.Get(from)
	if !known || !s.typical.Steady {
		return Gain{}, false
	}
	m := mover{s: s, ask: a, class: s.single(&a)}
	defer m.release()
	if m.id = s.find(taskKey{m.class.job, int32(a.Name.Index), was, a.Generation}); m.id < 0 {
		return Gain{}, false
	}
	leaves := m.worthWithout() - s.rows.At(was).worth
	for slot := range s.nodes.Len() {
		if slot == was || leaves <= best.Worth || s.check(m.class, slot) != fine {
			continue
		}
		n := s.nodes.At(slot)
		worth := leaves - s.lessWorth(m.class, n, s.rows.At(slot))
		if (worth > best.Worth || ok && worth == best.Worth && n.Name < best.To) && m.suitsAsWell(slot) {
			best, ok = Gain{n.Name, worth}, true
		}
	}
	return best, ok
}

// FirstAsWell returns the number of the first of some machines to which a task could move: one that
// has room for it while it still is where it is, and on which it is as well off as there, in all
// that BestMove compares but the room that is made. It is how many there are if there is none. The
// ask is the task's, and nothing is moved. The loads are of the snapshot, or of one that it is a
// fork of.
func FirstAsWell(s *Snapshot, a Ask, from string, machines []Load) int {
	was, known := s.slots.Get(from)
	if !known {
		return len(machines)
	}
	m := mover{s: s, ask: a, class: s.single(&a)}
	defer m.release()
	if m.id = s.find(taskKey{m.class.job, int32(a.Name.Index), was, a.Generation}); m.id < 0 {
		return len(machines)
	}
	for i := range machines {
		if slot := machines[i].slot; slot != was && s.check(m.class, slot) == fine && m.suitsAsWell(slot) {
			return i
		}
	}
	return len(machines)
}

// mover is a task that may move.
type mover struct {
	s     *Snapshot
	ask   Ask
	class *class
	id    int32
	// without is the cell without the task, and there its class; nil until asked for.
	without *Snapshot
	there   *class
}

func (m *mover) release() {
	if m.without != nil {
		m.without.Release()
	}
}

// worthWithout returns what is free on the machine of the task is worth once that has gone.
func (m *mover) worthWithout() float32 {
	s, t := m.s, m.s.tasks.At(m.id)
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

// suitsAsWell reports whether the task could as well be on another machine, as far as what
// stands above packing is concerned.
func (m *mover) suitsAsWell(to int32) bool {
	s, t := m.s, m.s.tasks.At(m.id)
	var before, after Terms
	s.rate(m.class, t.slot, &before)
	s.rate(m.class, to, &after)
	if len(m.class.needs) > 1 { // what it has, not what it would get beside that
		which := m.class.needs.Chosen(s.nodes.At(t.slot).devices, t.devices)
		if which < 0 {
			which = len(m.class.needs)
		}
		before.Devices = -s.weights.Wish * float32(which)
	}
	if after.Noise < before.Noise || after.unmet() < before.unmet() || s.isNeeded(t.profile, m.id, t.slot, to) {
		return false
	}
	if m.without == nil {
		m.without = s.Fork()
		m.without.RemoveTask(m.ask.Name, s.nodes.At(t.slot).Name, t.generation)
		m.there = m.without.single(&m.ask)
	}
	return !m.without.companyOf(m.there, t.slot).less(m.without.companyOf(m.there, to)) && m.without.leavesEven(m.there, t.slot, to, 0)
}
