package placement

import (
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
	for t := s.nodes[slot].first; t >= 0; t = s.tasks[t].nextHere {
		if h := &s.tasks[t]; h.isAlloc && key == (allocKey{h.job + 1, h.index}) {
			return t
		}
	}
	return -1
}

// open makes room in an alloc that has come, and moves what already runs inside
// from the machine to it.
func (s *Snapshot) open(id int32) {
	h := &s.tasks[id]
	s.allocs[id] = &alloc{free: h.limit}
	key := allocKey{h.job + 1, h.index}
	for t := s.nodes[h.slot].first; t >= 0; t = s.tasks[t].nextHere {
		if s.tasks[t].wants == key && s.tasks[t].inAlloc < 0 {
			s.charge(t, -1)
			s.tasks[t].inAlloc = id
			s.charge(t, 1)
		}
	}
}

// orphan moves the tasks of an alloc that is going to the machine itself.
func (s *Snapshot) orphan(id int32) {
	for t := s.nodes[s.tasks[id].slot].first; t >= 0; t = s.tasks[t].nextHere {
		if s.tasks[t].inAlloc == id {
			s.charge(t, -1)
			s.tasks[t].inAlloc = -1
			s.charge(t, 1)
		}
	}
}

// refill computes what is left in an alloc whose limit changed.
func (s *Snapshot) refill(id int32, a *alloc) {
	a.free = s.tasks[id].limit
	for t := s.nodes[s.tasks[id].slot].first; t >= 0; t = s.tasks[t].nextHere {
		if h := &s.tasks[t]; h.inAlloc == id {
			for d := range dims {
				a.free[d] -= h.limit[d]
			}
		}
	}
}

// decideInSet decides an ask that wants to run inside an alloc of a set: one
// that has the fewest tasks of the ask's job, so that helpers come to stand
// beside what they help; of these the one with the least room that suffices, so
// that large asks find room later; of equal ones that with the lowest index.
func (p *pass) decideInSet(c *class, a *Ask, job int32, d *Decision) {
	s := p.snapshot
	best, fewest := int32(-1), 0
	if set, ok := s.jobIDs[a.AllocSet]; ok {
		for t := s.jobs[set].first; t >= 0; t = s.tasks[t].nextOfJob {
			if s.checkAlloc(c, t) != fine || a.On != "" && a.On != s.nodes[s.tasks[t].slot].Name {
				continue
			}
			if n := s.countInAlloc(t, job); best < 0 || n < fewest || n == fewest && s.tighter(t, best) {
				best, fewest = t, n
			}
		}
	}
	if best < 0 {
		p.explainInSet(c, a, &d.Why)
		return
	}
	host := s.tasks[best]
	d.Why.Feasible = 1
	d.Alloc = schema.TaskName{JobName: a.AllocSet, Index: int(host.index)}
	p.commit(c, a, job, host.slot, d)
	id := s.nodes[host.slot].first // what commit put there
	s.charge(id, -1)
	s.tasks[id].inAlloc, s.tasks[id].wants = best, allocKey{host.job + 1, host.index}
	s.charge(id, 1)
	s.touch(host.slot)
}

// countInAlloc returns how many tasks of a job run in an alloc.
func (s *Snapshot) countInAlloc(id, job int32) (n int) {
	slot := s.tasks[id].slot
	if s.onMachine(job, slot) == 0 {
		return 0
	}
	for t := s.nodes[slot].first; t >= 0; t = s.tasks[t].nextHere {
		if h := &s.tasks[t]; h.inAlloc == id && h.job == job {
			n++
		}
	}
	return n
}

// tighter reports whether alloc t has less room than u.
func (s *Snapshot) tighter(t, u int32) bool {
	a, b := s.allocs[t].free, s.allocs[u].free
	for _, d := range []int{1, 0, 2} { // RAM first: it is what runs out for good
		if a[d] != b[d] {
			return a[d] < b[d]
		}
	}
	return s.tasks[t].index < s.tasks[u].index
}

// checkAlloc says why an alloc cannot take an ask.
func (s *Snapshot) checkAlloc(c *class, id int32) answer {
	t := &s.tasks[id]
	a := s.allocs[id]
	if a == nil || t.stopping {
		return hasNoAlloc
	}
	if r := s.admits(c, t.slot); r != fine {
		return r
	}
	switch {
	case c.limit[0] > a.free[0]:
		return lacksCPU
	case c.limit[1] > a.free[1]:
		return lacksRAM
	case c.limit[2] > a.free[2]:
		return lacksDisk
	case c.numbers != nil && !s.hasNumbers(c, t.slot):
		return lacksNumber
	case s.portsOf(c, t.slot) > s.ports[t.slot]:
		return lacksPorts
	case c.needs != nil && !s.hasDevices(c, t.slot):
		return lacksDevices
	}
	return fine
}

// checkSet says why no alloc of a set on a machine can take an ask: by the one
// that says it last in the order of the reasons.
func (s *Snapshot) checkSet(c *class, name schema.JobName, slot int32) answer {
	worst := hasNoAlloc
	set, ok := s.jobIDs[name]
	if !ok {
		return worst
	}
	for t := s.nodes[slot].first; t >= 0; t = s.tasks[t].nextHere {
		if s.tasks[t].job != set {
			continue
		}
		r := s.checkAlloc(c, t)
		if r == fine {
			return fine
		}
		worst = max(worst, r)
	}
	return worst
}

// explainInSet counts the machines by what their allocs lack. A machine with
// several allocs of the set counts once, by the one that says it last in the
// order of the reasons.
func (p *pass) explainInSet(c *class, a *Ask, w *Why) {
	s := p.snapshot
	by := map[int32]answer{}
	if set, ok := s.jobIDs[a.AllocSet]; ok {
		for t := s.jobs[set].first; t >= 0; t = s.tasks[t].nextOfJob {
			slot := s.tasks[t].slot
			by[slot] = max(by[slot], s.checkAlloc(c, t))
		}
	}
	var counts [answers]int
	for _, r := range by {
		counts[r]++
	}
	counts[hasNoAlloc] += len(s.slots) - len(by)
	w.Machines, w.Examined, w.Refused = len(s.slots), len(s.slots), countReasons(&counts)
}

// decideOn decides an ask that wants one certain machine.
func (p *pass) decideOn(c *class, a *Ask, job int32, d *Decision) {
	s := p.snapshot
	slot, ok := s.slots[a.On]
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
