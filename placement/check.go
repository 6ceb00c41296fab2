package placement

import (
	"math"
	"slices"

	"github.com/musterhq/muster/placement/device"
)

// free returns what the ask may count on of a machine: for prod what the limits of
// all tasks leave, for others what their reservations do (Borg §5.5).
func (c *wants) free(r *row) *vector {
	if c.prod {
		return &r.byLimit
	}
	return &r.byReserv
}

// check returns why a machine cannot take the asks of a class.
func (s *Snapshot) check(c *class, slot int32) answer {
	r := s.rows.At(slot)
	if a := s.admits(c, slot, r); a != fine {
		return a
	}
	free := c.free(r)
	switch {
	case r.heldAt >= c.priority && s.keptFrom(c, slot):
		return isHeld
	case c.limit[0] > free[0]:
		return lacksCPU
	case c.limit[1] > free[1]:
		return lacksRAM
	case c.limit[2] > free[2]:
		return lacksDisk
	case c.numbers != nil && s.nodes.At(slot).ports.HasAny(c.numbers):
		return lacksNumber
	case c.ports > r.ports || c.numbers != nil && c.portsOn(s.nodes.At(slot)) > r.ports:
		return lacksPorts
	case c.needs != nil && !s.hasDevices(c, slot):
		return lacksDevices
	}
	return fine
}

// admits returns why a machine is not feasible, whatever is free on it.
func (s *Snapshot) admits(c *class, slot int32, r *row) answer {
	a := s.allows(c, slot, r)
	if a == fine && c.kin != nil {
		_, a = s.kindred.related(c.kin, slot)
	}
	return a
}

// allows is admits but for relations, which change with the tasks on the machine.
func (s *Snapshot) allows(c *class, slot int32, r *row) answer {
	switch r.state {
	case stateDown, stateGone:
		return isDown
	case stateDraining:
		return isDraining
	case stateCordoned:
		return isCordoned
	}
	if c.priority < r.minPriority {
		if a := conditionOf(s.nodes.At(slot).Conditions, c.priority); a != fine {
			return a
		}
	}
	if c.ask.On != "" && c.ask.On != s.nodes.At(slot).Name {
		return isOther
	}
	if c.avoid != nil && c.avoid[s.nodes.At(slot).Name] {
		return isAvoided
	}
	if len(s.nodes.At(slot).Taints) > 0 && s.taintOf(c, slot) != nil {
		return isTainted
	}
	if failed(c.rules, slot) != nil {
		return isConstrained
	}
	if c.anyOf != nil && !anyHolds(c.anyOf, slot) {
		return hasNoneOf
	}
	if c.needs != nil && c.needs.Exist(s.nodes.At(slot).devices) < 0 {
		return hasNoDevice
	}
	if c.bounds != nil && !s.withinBounds(c, slot) {
		return isFullDomain
	}
	if c.skews != nil && s.skewed(c, slot) != nil {
		return isSkewed
	}
	return fine
}

// portsOn returns how many ports of a machine's range the class takes.
func (c *wants) portsOn(n *node) int32 {
	k := c.ports
	for _, p := range c.numbers {
		if int(p) >= n.Ports.First && int(p) <= n.Ports.Last {
			k++
		}
	}
	return k
}

// numbersWithout reports whether nobody on a machine has a port whose number the class asks for when some
// of its tasks have gone.
func (s *Snapshot) numbersWithout(c *class, slot int32, gone []int32) bool {
	if len(c.numbers) == 0 || !s.nodes.At(slot).ports.HasAny(c.numbers) {
		return true
	}
	n := s.nodes.At(slot)
	for _, p := range c.numbers {
		if slices.Contains(n.BusyPorts, int(p)) {
			return false
		}
		for id := n.first; id >= 0; id = s.tasks.At(id).nextHere {
			if slices.Contains(s.tasks.At(id).ports, p) && !slices.Contains(gone, id) {
				return false
			}
		}
	}
	return true
}

// taintOf returns the taint of a machine that a class does not tolerate; nil for none.
func (s *Snapshot) taintOf(c *class, slot int32) *Taint {
	if c.tolerant {
		return nil
	}
	return intolerable(s.nodes.At(slot).Taints, c.ask.Tolerations, c.user)
}

func (s *Snapshot) withinBounds(c *class, slot int32) bool {
	for _, b := range c.bounds {
		domain := b.column.At[slot]
		if domain == 0 || b.most < 1 {
			return false
		}
		if c.job < 0 {
			continue
		}
		if b.perMachine {
			if s.onMachine(c.job, slot) >= b.most {
				return false
			}
		} else if s.tallyOf(c.job, b.column).N[domain] >= b.most {
			return false
		}
	}
	return true
}

func (s *Snapshot) hasDevices(c *class, slot int32) bool {
	var room [16]device.Use
	_, ok := c.needs.Pick(s.nodes.At(slot).devices, room[:0])
	return ok
}

// profilesOf returns the relations of tasks.
func (s *Snapshot) profilesOf(tasks []int32) (profiles []int32) {
	for _, id := range tasks {
		if p := s.tasks.At(id).profile; p > 0 {
			profiles = append(profiles, p)
		}
	}
	return profiles
}

// near reports whether the class would be near what it has to be near when some of the
// tasks of a machine have gone.
func (s *Snapshot) near(c *class, slot int32, gone []int32) bool {
	return c.kin == nil || s.kindred.farFrom(c.kin, slot, s.profilesOf(gone)) == nil
}

// unrepelled reports whether nothing would be near that has to be apart when some of the
// tasks of a machine have gone.
func (s *Snapshot) unrepelled(c *class, slot int32, gone []int32) bool {
	if c.kin == nil {
		return true
	}
	_, a := s.kindred.repelledBy(c.kin, slot, s.profilesOf(gone))
	return a == fine
}

// isNeeded reports whether tasks that stay must be near one of a profile that leaves a machine
// for another, and would be no more. The task is id, or not held if that is -1.
func (s *Snapshot) isNeeded(profile, id, from, to int32) bool {
	if profile == 0 {
		return false
	}
	var gone []int32
	if id >= 0 {
		gone = []int32{profile}
	}
	for _, n := range s.kindred.needers(profile, from, to, gone) {
		for t := s.jobs.At(s.kindred.profiles.At(n.profile).job).first; t >= 0; t = s.tasks.At(t).nextOfJob {
			if h := s.tasks.At(t); t != id && h.profile == n.profile && !h.stopping && n.column.At[h.slot] == n.value {
				return true
			}
		}
	}
	return false
}

// roomFor returns for how many tasks of a class a machine has room, at most: with what they may
// evict there.
func (s *Snapshot) roomFor(c *class, slot int32) uint16 {
	r, n := s.rows.At(slot), s.nodes.At(slot)
	if s.allows(c, slot, r) != fine || r.heldAt >= c.priority && s.keptFrom(c, slot) {
		return 0
	}
	free, evicts := *c.free(r), false
	if s.options.Preempt && s.anyLower(c) {
		for id := n.first; id >= 0; id = s.tasks.At(id).nextHere {
			if t := s.tasks.At(id); s.mayEvict(c, t) && !s.protects(c, t) {
				evicts = true
				for d, v := range s.gain(c, t) {
					free[d] += v
				}
			}
		}
	}
	most := int64(math.MaxUint16)
	for d, want := range c.limit {
		if want > 0 {
			most = min(most, max(free[d], 0)/want)
		}
	}
	if len(c.numbers) > 0 {
		most = min(most, 1)
	}
	if evicts {
		return uint16(most)
	}
	if ports := c.portsOn(n); ports > 0 {
		most = min(most, int64(r.ports/ports))
	}
	if n.ports.HasAny(c.numbers) || c.needs != nil && !s.hasDevices(c, slot) {
		return 0
	}
	return uint16(max(most, 0))
}
