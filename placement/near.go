package placement

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Near is a machine that admits an ask, and would have room for it if it were empty.
type Near struct {
	Machine string
	Room    bool             // it has room now
	Lack    schema.Resources // that it is short of, for prod asks of limits, else of reservations

	short   float32 // as a share of the ask
	worth   float32 // its score, if it has room
	company company
}

// compare orders machines: those with room first, as they would be chosen, then those that
// lack the least.
func (n *Near) compare(o *Near) int {
	switch {
	case n.Room != o.Room:
		return schema.CompareBool(o.Room, n.Room)
	case n.company.less(o.company):
		return -1
	case o.company.less(n.company):
		return 1
	}
	return cmp.Or(cmp.Compare(n.short, o.short), cmp.Compare(o.worth, n.worth), cmp.Compare(n.Machine, o.Machine))
}

// Nearest returns the machines that admit an ask and would have room for it if they were
// empty, those with room first: at most so many, all with 0. If from is not "" it is where
// the task of the ask is, whom the caller has removed from the snapshot, and the machines
// are others, on which the job is spread no worse than there, and comes to no noise from which it is
// away there (see Weights.Noise). Nobody is evicted for that.
func Nearest(s *Snapshot, a Ask, from string, most int) []Near {
	var out []Near
	c := s.single(&a)
	stays, bound, quiet := company{}, false, false
	at := int32(-1)
	if slot, ok := s.slots.Get(from); ok {
		at, stays, bound, quiet = slot, s.companyOf(c, slot), true, !s.noisy(c, slot, nil)
	}
	for slot := range s.nodes.Len() {
		if slot == at || s.rows.At(slot).state == stateGone {
			continue
		}
		n, ok := nearOf(s, c, slot)
		if ok && bound {
			ok = s.leavesEven(c, at, slot, 0) && !(quiet && s.noisy(c, slot, nil))
		}
		if !ok || bound && stays.less(n.company) || most > 0 && len(out) == most && n.compare(&out[most-1]) >= 0 {
			continue
		}
		place, _ := slices.BinarySearchFunc(out, n, func(x, y Near) int { return x.compare(&y) })
		if out = slices.Insert(out, place, n); most > 0 && len(out) > most {
			out = out[:most]
		}
	}
	return out
}

// NearOn is Nearest of one machine; false if it does not admit the ask, or would have no room.
func NearOn(s *Snapshot, a Ask, machine string) (Near, bool) {
	slot, ok := s.slots.Get(machine)
	if !ok {
		return Near{}, false
	}
	return nearOf(s, s.single(&a), slot)
}

func nearOf(s *Snapshot, c *class, slot int32) (Near, bool) {
	n := Near{Machine: s.nodes.At(slot).Name, company: s.companyOf(c, slot)}
	if s.check(c, slot) == fine {
		n.Room, n.worth = true, s.worth(c, slot)
		return n, true
	}
	r := s.rows.At(slot)
	if s.keptFrom(c, slot) || s.admits(c, slot, r) != fine || !s.fitsEmpty(c, slot) {
		return Near{}, false
	}
	free := c.free(r)
	var lack vector
	for d := range dims {
		lack[d] = max(0, c.limit[d]-free[d])
	}
	n.Lack, n.short = lack.resources(), s.shortOf(c, slot)
	return n, true
}

// TasksOn returns the tasks that a machine holds and that have an Ask, which is their own;
// claims are none. They are in an order that is always the same.
func TasksOn(s *Snapshot, machine string) []Task {
	slot, ok := s.slots.Get(machine)
	if !ok {
		return nil
	}
	var ids []int32
	for id := s.nodes.At(slot).first; id >= 0; id = s.tasks.At(id).nextHere {
		if t := s.tasks.At(id); !t.claim && t.ask != nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, s.compareTasks)
	out := make([]Task, 0, len(ids))
	for _, id := range ids {
		t := s.tasks.At(id)
		a := t.again(s)
		h := Task{
			Name: a.Name, Generation: t.generation, Machine: machine, Priority: a.Priority, Limit: t.limit.resources(), Reservation: t.reserv.resources(),
			Stopping: t.stopping, Together: t.together, Gang: s.gangs.name(t.gang), IsAlloc: t.isAlloc, Ask: &a,
		}
		if host := t.inAlloc; host >= 0 {
			h.Alloc = s.jobs.At(s.tasks.At(host).job).name.Task(int(s.tasks.At(host).index))
		}
		out = append(out, h)
	}
	return out
}

// Move has a task be on another machine than from, with ports and devices that are free
// there. It reports false, and changes nothing, if that does not admit the task, or has no
// room for it while the task is still on from, or others would lose what they must be near.
// The ask is the task's.
func Move(s *Snapshot, a Ask, from, to string) bool {
	s.merge()
	was, ok := s.slots.Get(from)
	slot, known := s.slots.Get(to)
	if !ok || !known {
		return false
	}
	c := s.single(&a)
	id := s.find(taskKey{c.job, int32(a.Name.Index), was, a.Generation})
	if id < 0 || s.check(c, slot) != fine || !s.leavesEven(c, was, slot, 1) || s.isNeeded(s.tasks.At(id).profile, id, was, slot) {
		return false
	}
	n := s.nodes.At(slot)
	d := Decision{Name: a.Name, Machine: to}
	if len(a.Ports) > 0 {
		d.Ports = s.choosePorts(c, &a, slot, 0)
	}
	if c.needs != nil {
		devices, _ := c.needs.Pick(n.devices, nil)
		d.Devices = usesOf(n.Devices, devices)
	}
	s.drop(id)
	s.touch(was)
	s.put(c, &a, c.job, slot, &d)
	return true
}
