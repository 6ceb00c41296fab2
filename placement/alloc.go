package placement

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// alloc is what is left inside an alloc. The machine is charged with the
// alloc's limit, used or not.
type alloc struct {
	free vector
}

// allocNamed returns the alloc of that name on a machine, or -1. A task whose
// alloc is not there is charged to the machine, which is the safe side.
func (s *Snapshot) allocNamed(key allocKey, slot int32) int32 {
	for t := s.nodes.At(slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		if h := s.tasks.At(t); h.isAlloc && key == (allocKey{h.job + 1, h.index}) {
			return t
		}
	}
	return -1
}

// open makes room in an alloc that has come, and moves what already runs inside
// from the machine to it.
func (s *Snapshot) open(id int32) {
	h := s.tasks.Edit(id)
	key := allocKey{h.job + 1, h.index}
	h.alloc = &alloc{free: h.limit}
	for t := s.nodes.At(h.slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		if s.tasks.At(t).wants == key && s.tasks.At(t).inAlloc < 0 {
			s.move(t, id)
		}
	}
}

// orphan moves the tasks of an alloc that is going to the machine itself.
func (s *Snapshot) orphan(id int32) {
	for t := s.nodes.At(s.tasks.At(id).slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		if s.tasks.At(t).inAlloc == id {
			s.move(t, -1)
		}
	}
	s.tasks.Edit(id).alloc = nil
}

// move charges a task that a machine holds to an alloc there, or to the machine
// itself for -1.
func (s *Snapshot) move(id, to int32) {
	s.charge(id, -1)
	s.tasks.Edit(id).inAlloc = to
	s.charge(id, 1)
}

// refill computes what is left in an alloc whose limit changed.
func (s *Snapshot) refill(id int32) {
	host := s.tasks.Edit(id)
	left := alloc{free: host.limit}
	for t := s.nodes.At(host.slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		if h := s.tasks.At(t); h.inAlloc == id {
			for d := range dims {
				left.free[d] -= h.limit[d]
			}
		}
	}
	host.alloc = &left
}

// decideInSet decides an ask that wants to run inside an alloc of a set: the one
// that suits it best of those that can take it.
func (p *pass) decideInSet(c *class, a *Ask, job int32, d *Decision) {
	s := p.snapshot
	best := s.bestInSet(c, a, job)
	if best < 0 {
		p.explainInSet(c, a, &d.Why)
		return
	}
	host := *s.tasks.At(best)
	d.Why.Feasible = 1
	d.Alloc = schema.TaskName{JobName: a.AllocSet, Index: int(host.index)}
	p.commit(c, a, job, host.slot, d)
	s.enter(host.slot, best)
}

// enter charges the task that was put on a machine last to an alloc there.
func (s *Snapshot) enter(slot, host int32) {
	id, h := s.nodes.At(slot).first, s.tasks.At(host)
	s.burden.count(s.tasks.At(id), -1)
	s.tasks.Edit(id).wants = allocKey{h.job + 1, h.index}
	s.move(id, host)
	s.touch(slot)
}

// suits is how well an alloc suits an ask: the less the better, the first number
// that differs decides.
type suits [3]int

// bestInSet returns the alloc of a set that suits an ask best, -1 if none can take
// it. The fewest tasks of the ask's job are inside, so that helpers come to stand
// beside what they help; of these, the fewest tasks at all; of these, it has the
// ask's index; of these, the least room that suffices, so that large asks find
// room later.
func (s *Snapshot) bestInSet(c *class, a *Ask, job int32) int32 {
	best, fewest := int32(-1), suits{}
	set, ok := s.jobIDs.Get(a.AllocSet)
	if !ok {
		return best
	}
	for t := s.jobs.At(set).first; t >= 0; t = s.tasks.At(t).nextOfJob {
		if s.takes(c, a, job, t) != fine || a.On != "" && a.On != s.nodes.At(s.tasks.At(t).slot).Name {
			continue
		}
		own, all := s.countInAlloc(t, job)
		n := suits{own, all, 1}
		if int(s.tasks.At(t).index) == a.Name.Index {
			n[2] = 0
		}
		if order := slices.Compare(n[:], fewest[:]); best < 0 || order < 0 || order == 0 && s.tighter(t, best) {
			best, fewest = t, n
		}
	}
	return best
}

// takes says why an alloc of its set cannot take an ask.
func (s *Snapshot) takes(c *class, a *Ask, job, id int32) answer {
	if a.Alloc != (schema.TaskName{}) && a.Alloc.Index != int(s.tasks.At(id).index) {
		return hasNoAlloc
	}
	r := s.checkAlloc(c, id)
	if r == fine && a.AllocMax > 0 {
		if own, _ := s.countInAlloc(id, job); own >= a.AllocMax {
			return hasShare
		}
	}
	return r
}

// countInAlloc returns how many tasks of a job run in an alloc, and how many of all.
func (s *Snapshot) countInAlloc(id, job int32) (own, all int) {
	for t := s.nodes.At(s.tasks.At(id).slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		if h := s.tasks.At(t); h.inAlloc == id {
			if all++; h.job == job {
				own++
			}
		}
	}
	return own, all
}

// tighter reports whether alloc t has less room than u.
func (s *Snapshot) tighter(t, u int32) bool {
	a, b := s.tasks.At(t).alloc.free, s.tasks.At(u).alloc.free
	for _, d := range []int{1, 0, 2} { // RAM first: it is what runs out for good
		if a[d] != b[d] {
			return a[d] < b[d]
		}
	}
	return s.tasks.At(t).index < s.tasks.At(u).index
}

// checkAlloc says why an alloc cannot take an ask.
func (s *Snapshot) checkAlloc(c *class, id int32) answer {
	t := s.tasks.At(id)
	a := t.alloc
	if a == nil || t.stopping {
		return hasNoAlloc
	}
	if r := s.admits(c, t.slot, s.rows.At(t.slot)); r != fine {
		return r
	}
	switch {
	case c.limit[0] > a.free[0]:
		return lacksCPU
	case c.limit[1] > a.free[1]:
		return lacksRAM
	case c.limit[2] > a.free[2]:
		return lacksDisk
	case c.numbers != nil && s.nodes.At(t.slot).ports.HasAny(c.numbers) || !s.hasShared(c, id):
		return lacksNumber
	case c.portsOn(s.nodes.At(t.slot)) > s.rows.At(t.slot).ports:
		return lacksPorts
	case c.needs != nil && !s.hasDevices(c, t.slot):
		return lacksDevices
	}
	return fine
}

// hasShared reports whether none of the tasks in an alloc has a port in the network that they
// share whose number the class asks for.
func (s *Snapshot) hasShared(c *class, id int32) bool {
	if len(c.shared) == 0 {
		return true
	}
	for t := s.nodes.At(s.tasks.At(id).slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		if h := s.tasks.At(t); h.inAlloc == id && slices.ContainsFunc(c.shared, func(n uint16) bool { return slices.Contains(h.shared, n) }) {
			return false
		}
	}
	return true
}

// checkSet says why no alloc of a set on a machine can take an ask: by the one
// that says it last in the order of the reasons.
func (s *Snapshot) checkSet(c *class, a *Ask, slot int32) answer {
	set, ok := s.jobIDs.Get(a.AllocSet)
	if !ok {
		return hasNoAlloc
	}
	worst := fine
	for t := s.nodes.At(slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		if s.tasks.At(t).job != set || a.Alloc != (schema.TaskName{}) && a.Alloc.Index != int(s.tasks.At(t).index) {
			continue
		}
		r := s.takes(c, a, s.jobID(a.Name.JobName), t)
		if r == fine {
			return fine
		}
		worst = max(worst, r)
	}
	if worst == fine {
		return hasNoAlloc
	}
	return worst
}

// explainInSet counts the allocs of the set by what they lack, and the machines if there are none.
func (p *pass) explainInSet(c *class, a *Ask, w *Why) {
	s, allocs := p.snapshot, 0
	var counts [answers]int
	if set, ok := s.jobIDs.Get(a.AllocSet); ok {
		for t := s.jobs.At(set).first; t >= 0; t = s.tasks.At(t).nextOfJob {
			if r := s.takes(c, a, s.jobID(a.Name.JobName), t); r != hasNoAlloc { // else it is on its way
				counts[r]++
				allocs++
			}
		}
	}
	if w.Machines, w.Allocs = allocs, a.AllocSet.Short(); allocs == 0 {
		w.Machines, w.Allocs = s.slots.Len(), ""
		counts[hasNoAlloc] = w.Machines
	}
	w.Examined, w.Refused = w.Machines, countReasons(&counts, nil)
}

// decideOn decides an ask that wants one certain machine.
func (p *pass) decideOn(c *class, a *Ask, job int32, d *Decision) {
	s := p.snapshot
	slot, ok := s.slots.Get(a.On)
	if ok && s.check(c, slot) == fine {
		d.Why.Examined, d.Why.Feasible = 1, 1
		d.Why.Score = s.scoreOf(c, slot)
		p.commit(c, a, job, slot, d)
		return
	}
	if ok && s.options.Preempt {
		plan, found := s.solve(c, slot, true)
		if !found {
			plan, found = s.solve(c, slot, false)
		}
		if found {
			p.evict(c, a, job, plan, d)
			return
		}
	}
	s.explain(c, &d.Why)
}
