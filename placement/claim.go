package placement

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/schema"
)

// Claim holds the room on a machine that tasks on their way out will leave for
// an ask: what it needs beyond what these still have, so that no other ask of
// its priority or lower gets between. It lasts until Place decides the ask,
// which then has the room, or evicts the claim for an ask of higher priority,
// or until ClearClaims; a new one takes its place. With again an evicted claim asks in the same pass;
// without, the caller asks for it anyway. It reports false, and holds nothing,
// if the ask does not fit where they have gone.
func (s *Snapshot) Claim(a Ask, machine string, leaving []Victim, again bool) bool {
	h := task{}
	if again {
		h.ask = &a
	}
	return s.claimAs(h, &a, machine, leaving)
}

// ClaimMove is Claim without again, for a task that is on its way from another machine. It may come
// late, or to another machine after all: until then SkewLimit holds with it and without it. The
// caller has removed the task from the machine that it leaves.
func (s *Snapshot) ClaimMove(a Ask, machine string, leaving []Victim) bool {
	return s.claimAs(task{moves: true}, &a, machine, leaving)
}

// ClaimBack is Claim for tasks that were stopped to run again, as another version or as they were, on
// the machines that from says: what could not have evicted a task before does not evict its claim
// either. Of asks that go together all have claims or none. Tasks that have to be near each other have claims
// beside each other. What runs in an alloc has a claim on what it has of the machine itself: the rest is the alloc's.
func (s *Snapshot) ClaimBack(asks []Ask, from func(schema.TaskName) string) {
	failed := map[crowd]bool{}
	var related []*Ask
	for i := range asks {
		a := &asks[i]
		machine := from(a.Name)
		if machine == "" || a.Claims || failed[crowdOf(a)] {
			continue
		}
		if a.AllocSet != (schema.JobName{}) {
			if own := a.besideAlloc(); len(own.Ports) > 0 || own.wantsDevices() {
				s.claimAs(task{back: true}, own, machine, nil)
			}
			continue
		}
		if !s.claimAs(task{back: true}, a, machine, nil) {
			failed[crowdOf(a)] = a.gathers()
		} else if a.Relations != nil {
			related = append(related, a)
		}
	}
	s.releaseAlone(related, failed)
	for i := range asks {
		if a := &asks[i]; failed[crowdOf(a)] && !a.Claims && from(a.Name) != "" {
			s.release(s.jobID(a.Name.JobName), a.Name.Index)
		}
	}
}

// besideAlloc returns what an ask that runs in an alloc has of the machine itself: the numbers of its ports, and devices.
func (a *Ask) besideAlloc() *Ask {
	own := &Ask{Name: a.Name, Generation: a.Generation, Priority: a.Priority, PortNumbers: a.PortNumbers, Devices: a.Devices}
	own.FirstOf, own.Had = a.FirstOf, a.Had
	own.Ports = slices.Sorted(maps.Keys(a.PortNumbers))
	return own
}

// releaseAlone gives up those of the asks' claims back that are not near what their asks require: others with
// claims back count, until these are given up as well.
func (s *Snapshot) releaseAlone(asks []*Ask, failed map[crowd]bool) {
	for again := true; again; {
		again = false
		for _, a := range asks {
			c := s.single(a)
			id, has := s.claims.Get(together(c.job, int32(a.Name.Index)))
			if has && !s.near(c, s.tasks.At(id).slot, []int32{id}) {
				s.release(c.job, a.Name.Index)
				failed[crowdOf(a)] = failed[crowdOf(a)] || a.gathers()
				again = true
			}
		}
	}
}

// claimAs makes a claim of which h says what the ask does not.
func (s *Snapshot) claimAs(h task, a *Ask, machine string, leaving []Victim) bool {
	s.merge()
	slot, ok := s.slots.Get(machine)
	if !ok {
		return false
	}
	c := s.single(a)
	s.release(c.job, a.Name.Index)
	var ids []int32
	for _, v := range leaving {
		if id := s.find(taskKey{s.jobID(v.Name.JobName), int32(v.Name.Index), slot, v.Generation}); id >= 0 {
			ids = append(ids, id)
		}
	}
	if !s.hasRoomWithout(c, slot, ids) || !h.back && !s.near(c, slot, ids) {
		return false
	}
	h.taskKey, h.profile = taskKey{c.job, int32(a.Name.Index), slot, a.Generation}, s.profileOf(c.job, a.Relations)
	s.claim(c, a, h, ids)
	return true
}

// ClearClaims gives up all claims.
func (s *Snapshot) ClearClaims() {
	s.merge()
	ids := make([]int32, 0, s.claims.Len())
	for _, id := range s.claims.All() {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		slot := s.tasks.At(id).slot
		s.drop(id)
		s.touch(slot)
	}
}

// fitsWithout reports whether the class fits where the given tasks have gone.
func (s *Snapshot) fitsWithout(c *class, slot int32, leaving []int32) bool {
	return s.near(c, slot, leaving) && s.hasRoomWithout(c, slot, leaving)
}

// hasRoomWithout is fitsWithout for a class that need not be near others.
func (s *Snapshot) hasRoomWithout(c *class, slot int32, leaving []int32) bool {
	if s.allows(c, slot, s.rows.At(slot)) != fine || !s.unrepelled(c, slot, leaving) {
		return false
	}
	lack, ports := s.deficit(c, slot)
	for _, id := range leaving {
		t := s.tasks.At(id)
		gain := s.gain(c, t)
		for d := range dims {
			if t.inAlloc < 0 { // else its alloc has it
				lack[d] -= gain[d]
			}
		}
		ports -= s.portGain(t)
	}
	if c.needs != nil {
		if _, ok := c.needs.Pick(s.devicesAfter(slot, leaving), nil); !ok {
			return false
		}
	}
	return s.numbersWithout(c, slot, leaving) && lack[0] <= 0 && lack[1] <= 0 && lack[2] <= 0 && ports <= 0
}

// devicesAfter returns the devices of a machine as they are once the given tasks have gone.
func (s *Snapshot) devicesAfter(slot int32, leaving []int32) []device.Device {
	after := slices.Clone(s.nodes.At(slot).devices)
	for _, id := range leaving {
		device.Give(after, s.tasks.At(id).devices)
	}
	return after
}

// claim holds what a class needs beyond what the leaving tasks still have. Whose claim it
// is, h says.
func (s *Snapshot) claim(c *class, a *Ask, h task, leaving []int32) {
	h.priority, h.limit, h.reserv, h.inAlloc, h.claim = c.priority, c.limit, c.limit, -1, true
	if c.needs != nil {
		needs := c.needs
		if !h.back { // what one has preempted others for may be the least that it does with
			needs = needs.Least()
		}
		h.devices = a.pick(needs, s.nodes.At(h.slot).Name, s.devicesAfter(h.slot, leaving))
	}
	for _, id := range leaving {
		t := s.tasks.At(id)
		for d := range dims {
			if t.inAlloc < 0 {
				h.limit[d] -= t.limit[d]
				h.reserv[d] -= t.reserv[d]
			}
		}
		for _, has := range t.devices {
			for i := range h.devices {
				if u := &h.devices[i]; u.Index == has.Index {
					u.Milli = max(0, u.Milli-has.Milli)
				}
			}
		}
	}
	for d := range dims {
		h.limit[d], h.reserv[d] = max(0, h.limit[d]), max(0, h.reserv[d])
	}
	for _, p := range c.numbers {
		if !s.nodes.At(h.slot).ports.Has(p) { // else one that leaves has it
			h.ports = append(h.ports, p)
		}
	}
	s.holdClaim(h)
}

// holdClaim holds what a claim holds.
func (s *Snapshot) holdClaim(h task) {
	s.hold(h)
	s.claims.Set(together(h.job, h.index), s.nodes.At(h.slot).first) // what hold put there
	s.touch(h.slot)
}

// release gives up the claim of a task that is about to be decided.
func (s *Snapshot) release(job int32, index int) {
	if id, ok := s.claims.Get(together(job, int32(index))); ok {
		slot := s.tasks.At(id).slot
		s.drop(id)
		s.touch(slot)
	}
}

// releaseOwn gives up the claim of an ask that is about to be decided. What is known of the class is not
// void by that where the machine is in no domain which had as many of the job's tasks as it may: of the
// machine itself the log says so.
func (p *pass) releaseOwn(e entry) {
	s := p.snapshot
	id, has := s.claims.Get(together(e.job, int32(e.ask.Name.Index)))
	if !has {
		return
	}
	j := s.jobs.At(e.job)
	c := j.recent
	stays := c != nil && c.pass == s.passes && c.job == e.job && c.changes == j.changes && !s.filled(c, s.tasks.At(id).slot)
	if s.release(e.job, e.ask.Name.Index); stays {
		c.changes = s.jobs.At(e.job).changes
	}
}

// stop marks tasks of a machine as stopping.
func (s *Snapshot) stop(slot int32, tasks []int32) {
	for _, id := range tasks {
		t := s.tasks.Edit(id)
		t.stopping = true
		s.countStopping(t.job, t.slot, true)
	}
	s.touch(slot)
}

// evictLater carries out an eviction whose victims take their time: they hold
// what they have until the caller removes them, and the ask has a claim on it.
func (p *pass) evictLater(c *class, a *Ask, job int32, plan eviction, d *Decision) {
	s := p.snapshot
	var leaving []int32
	for _, id := range plan.victims {
		if s.tasks.At(id).claim { // there is nobody to wait for
			p.remove(id, d)
			continue
		}
		for t := s.nodes.At(plan.slot).first; s.tasks.At(id).isAlloc && t >= 0; t = s.tasks.At(t).nextHere {
			if s.tasks.At(t).inAlloc == id {
				leaving = append(leaving, t)
			}
		}
		leaving = append(leaving, id)
	}
	for _, id := range leaving {
		d.Victims = append(d.Victims, s.victim(s.tasks.At(id)))
	}
	s.stop(plan.slot, leaving)
	d.Why.Score = s.scoreOf(c, plan.slot)
	if len(leaving) == 0 {
		p.commit(c, a, job, plan.slot, d)
		return
	}
	d.Machine, d.Later = s.nodes.At(plan.slot).Name, true
	s.claim(c, a, task{taskKey: taskKey{job, int32(a.Name.Index), plan.slot, a.Generation}, profile: s.profileOf(job, a.Relations)}, leaving)
}

// victimsOf returns those of a decision's victims that a machine holds.
func (s *Snapshot) victimsOf(d *Decision, slot int32) (ids []int32) {
	for _, v := range d.Victims {
		if id := s.find(taskKey{s.jobID(v.Name.JobName), int32(v.Name.Index), slot, v.Generation}); id >= 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// carryOut does what a decision says that was made on a fork, for which there is a
// machine.
func (s *Snapshot) carryOut(a *Ask, d *Decision) {
	s.merge()
	slot, _ := s.slots.Get(d.Machine)
	c := s.single(a)
	s.release(c.job, a.Name.Index)
	var leaving []int32
	for _, id := range s.victimsOf(d, slot) {
		if d.Later && !s.tasks.At(id).claim {
			leaving = append(leaving, id)
		} else {
			s.drop(id)
		}
	}
	if d.Later {
		s.stop(slot, leaving)
		s.claim(c, a, task{taskKey: taskKey{c.job, int32(a.Name.Index), slot, a.Generation}, profile: s.profileOf(c.job, a.Relations)}, leaving)
		return
	}
	s.put(c, a, c.job, slot, d)
	if c.inSet {
		s.enter(slot, s.allocNamed(s.allocKeyOf(d.Alloc), slot))
	}
}
