package placement

import (
	"slices"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/schema"
)

// Plan is what a scheduler has decided on a fork, as data: each decision with what
// it relied on. It is committed to the cell as that is by then, see Verify. A
// scheduler that decides beside others needs no lock on the cell for that, as in
// Omega (Schwarzkopf et al., EuroSys 2013): those of `muster simulate pack` do so. The
// reconciler's own, which decides and commits in one step, needs no plan.
type Plan struct {
	Steps []Planned // in the order in which they were decided
}

// Planned is one decision of a plan.
type Planned struct {
	Ask      Ask
	Decision Decision
	// Group names steps that hold together or not at all; "" for none.
	Group string
	// From is the machine from which the task of the ask was evicted by a step
	// before, "" if it was not.
	From string
	// InDomain and OnMachine are how many tasks of the ask's job stayed where its
	// machine is, and on the machine. That there are no more is what the decision
	// relied on for the spread of the job; for all else, that there is room.
	// Outer is the load of the outer domain of the machine, where the job is spread over
	// several attributes or by targets.
	InDomain, OnMachine, Outer int
}

// Conflict is a step of a plan that does not hold any more.
type Conflict struct {
	Name    schema.TaskName
	Machine string
	Reason  Reason
	Group   string
}

// NewPlan decides asks as Place does, on a fork of a snapshot, and leaves that as it
// is. The groups say which asks are placed together or not at all; an ask that is
// not among them stands alone. What gets no place is no part of the plan.
func NewPlan(s *Snapshot, asks []Ask, groups map[schema.TaskName]string, seed uint64) Plan {
	fork := s.Fork()
	decisions := Place(fork, asks, seed)
	fork.Release()
	asked := make(map[schema.TaskName]Planned, len(asks))
	for i := range asks {
		asked[asks[i].Name] = Planned{Ask: asks[i], Group: groups[asks[i].Name]}
	}
	fork = s.Fork()
	defer fork.Release()
	var p Plan
	pending := map[string]bool{} // groups
	for _, d := range decisions {
		step := asked[d.Name]
		if step.Decision = d; d.Machine == "" {
			pending[step.Group] = true
			continue
		}
		slot, _ := fork.slots.Get(d.Machine)
		with := fork.companyOf(fork.single(&step.Ask), slot)
		step.InDomain, step.OnMachine, step.Outer = int(with.inDomain), int(with.onMachine), int(with.outer)
		for _, id := range fork.victimsOf(&step.Decision, slot) {
			if t := fork.tasks.At(id); t.ask != nil { // it has asked again
				asked[fork.jobs.At(t.job).name.Task(int(t.index))] = Planned{Ask: t.again(fork), From: d.Machine}
			}
		}
		step.apply(fork)
		p.Steps = append(p.Steps, step)
	}
	delete(pending, "")
	p.Steps = slices.DeleteFunc(p.Steps, func(x Planned) bool { return pending[x.Group] })
	p, _ = Verify(p, s) // others may have counted on what the groups would have left
	return p
}

// Verify returns the part of a plan that holds against a newer snapshot, and why each
// other step does not. All that holds can be done together, in its order, and is what
// Commit does. It changes nothing.
//
// A step holds if its machine is there and admits the ask, has the room, the ports
// and the devices that were chosen, holds all victims, all of them can be evicted
// and have to be, and if the job would not be spread worse than it was decided. Of a
// group all steps hold or none; a group that does not makes Verify begin again.
func Verify(p Plan, newer *Snapshot) (holds Plan, conflicts []Conflict) {
	broken := map[string]bool{}
	for {
		fork := newer.Fork()
		p.noteHeld(fork)
		again := false
		holds, conflicts = Plan{}, nil
		evicted := map[schema.TaskName]bool{} // by steps that hold
		for i := range p.Steps {
			step := &p.Steps[i]
			r := step.holds(fork)
			if step.From != "" && !evicted[step.Ask.Name] {
				r = ReasonStays // or it has ended, or another plan has evicted it and placed it again
			}
			if r == "" && broken[step.Group] {
				r = ReasonGroup
			}
			if r == "" {
				for _, v := range step.Decision.Victims {
					evicted[v.Name] = true
				}
				step.apply(fork)
				holds.Steps = append(holds.Steps, *step)
				continue
			}
			if step.Group != "" && !broken[step.Group] {
				broken[step.Group], again = true, true
			}
			conflicts = append(conflicts, Conflict{step.Decision.Name, step.Decision.Machine, r, step.Group})
		}
		fork.Release()
		if !again {
			return holds, conflicts
		}
	}
}

// noteHeld takes down which machines are held for the asks of a plan.
func (p *Plan) noteHeld(s *Snapshot) {
	for i := range p.Steps {
		s.noteHeld(&p.Steps[i].Ask)
	}
}

// Commit does to a snapshot what holds of a plan, as Place does it, and returns that,
// and why the rest does not hold.
func Commit(s *Snapshot, p Plan) (done Plan, conflicts []Conflict) {
	done, conflicts = Verify(p, s)
	for i := range done.Steps {
		done.Steps[i].apply(s)
	}
	return done, conflicts
}

// holds returns why a step does not hold, "" if it does.
func (x *Planned) holds(s *Snapshot) Reason {
	if from, ok := s.slots.Get(x.From); ok && s.find(taskKey{s.jobID(x.Ask.Name.JobName), int32(x.Ask.Name.Index), from, x.Ask.Generation}) >= 0 {
		return ReasonStays
	}
	slot, ok := s.slots.Get(x.Decision.Machine)
	if !ok {
		return ReasonGone
	}
	c := s.single(&x.Ask)
	victims := s.victimsOf(&x.Decision, slot)
	if len(victims) != len(x.Decision.Victims) || slices.ContainsFunc(victims, func(id int32) bool { return !x.mayEvict(s, c, id, victims) }) {
		return ReasonVictims
	}
	leaving := victims
	if id, ok := s.claims.Get(together(c.job, int32(x.Ask.Name.Index))); ok && s.tasks.At(id).slot == slot {
		leaving = append(slices.Clone(victims), id) // its own
	}
	if r := x.room(s, c, slot, leaving); r != "" {
		return r
	}
	if len(victims) > 0 && x.room(s, c, slot, leaving[len(victims):]) == "" {
		return ReasonNeedless
	}
	if with := s.companyOf(c, slot); int(with.inDomain) > x.InDomain || int(with.onMachine) > x.OnMachine || int(with.outer) > x.Outer {
		return ReasonSpread
	}
	return ""
}

// mayEvict reports whether a step may evict a task, alone or with the alloc that it
// runs in.
func (x *Planned) mayEvict(s *Snapshot, c *class, id int32, victims []int32) bool {
	t := s.tasks.At(id)
	if t.inAlloc >= 0 {
		return slices.Contains(victims, t.inAlloc)
	}
	return s.mayEvict(c, t) && s.mayGo(c, id)
}

// room returns why a machine, or an alloc on it, has no room for a step where some
// tasks have gone; "" if it has.
func (x *Planned) room(s *Snapshot, c *class, slot int32, leaving []int32) Reason {
	n := s.nodes.At(slot)
	switch {
	case c.inSet:
		host := s.allocNamed(s.allocKeyOf(x.Decision.Alloc), slot)
		if host < 0 {
			return ReasonNoAlloc
		}
		if a := s.takes(c, &x.Ask, c.job, host); a != fine {
			return reasons[a]
		}
	case !s.fitsWithout(c, slot, leaving):
		if a := s.check(c, slot); a != fine {
			return reasons[a]
		}
		return ReasonVictims
	}
	for _, p := range x.Decision.Ports {
		if !n.ports.Has(uint16(p.Port)) {
			continue
		}
		if slices.Contains(n.BusyPorts, p.Port) {
			return ReasonPortTaken
		}
		for id := n.first; id >= 0; id = s.tasks.At(id).nextHere {
			if slices.Contains(s.tasks.At(id).ports, uint16(p.Port)) && !slices.Contains(leaving, id) {
				return ReasonPortTaken
			}
		}
	}
	after := slices.Clone(n.devices)
	for _, id := range leaving {
		device.Give(after, s.tasks.At(id).devices)
	}
	for _, u := range x.Decision.Devices {
		if u.Index >= len(after) || int(after[u.Index].Free) < u.Milli {
			return ReasonDevices
		}
		after[u.Index].Free -= int16(u.Milli) // it may use a device for two things
	}
	return ""
}

// apply does to a snapshot what a step that holds says.
func (x *Planned) apply(s *Snapshot) { s.carryOut(&x.Ask, &x.Decision) }
