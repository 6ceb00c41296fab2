package placement

import (
	"slices"
	"time"
)

// A machine in holdShare may be held for those that have waited long, and one
// in any cell.
const holdShare = 100

func (s *Snapshot) reserveAfter() time.Duration {
	if s.options.ReserveAfter == 0 {
		return DefaultReserveAfter
	}
	return s.options.ReserveAfter
}

// reserves reports whether a machine may be held for an ask that has waited so
// long: once it has waited for the time that Options.ReserveAfter says, for as
// long again; then not for as long, and so on. What never comes to run costs
// others half of the time at most.
func (s *Snapshot) reserves(waited time.Duration) bool {
	after := s.reserveAfter()
	return after > 0 && waited/after%2 == 1
}

// hold keeps a machine free of further tasks of the ask's priority and lower,
// if the ask has waited long. It is the machine that would take the ask when
// empty and lacks the least now; since nothing new is put there, it is the
// same in the next pass, but for a machine that does even better by then.
func (p *pass) hold(c *class, a *Ask, d *Decision) {
	s := p.snapshot
	if !s.reserves(a.Waited) || len(s.holds) >= 1+s.slots.len()/holdShare {
		return
	}
	best, least := int32(-1), float32(0)
	for i := range s.nodes.len() {
		r := s.rows.at(i)
		if r.state != stateUp || r.heldAt >= c.priority || s.admits(c, i, r) != fine || !s.fitsEmpty(c, i) {
			continue
		}
		if short := s.shortOf(c, i); best < 0 || short < least || short == least && s.compareSlots(i, best) < 0 {
			best, least = i, short
		}
	}
	if best < 0 {
		return
	}
	s.rows.edit(best).heldAt = c.priority
	s.holds = append(s.holds, best)
	s.touch(best)
	d.Why.Held = s.nodes.at(best).Name
}

// fitsEmpty reports whether the ask would fit if the machine were empty.
func (s *Snapshot) fitsEmpty(c *class, slot int32) bool {
	n := s.nodes.at(slot)
	capacity := vectorOf(n.Capacity)
	for d := range dims {
		if c.limit[d] > capacity[d] {
			return false
		}
	}
	for _, p := range c.numbers {
		if slices.Contains(n.BusyPorts, int(p)) {
			return false
		}
	}
	ports := s.portsOf(c, slot)
	return ports == 0 || n.Ports.First > 0 && int(ports) <= n.Ports.Last-n.Ports.First+1-len(n.BusyPorts)
}

// shortOf returns what the machine lacks for the ask, as a share of it.
func (s *Snapshot) shortOf(c *class, slot int32) (short float32) {
	r := s.rows.at(slot)
	free := c.free(r)
	for d := range dims {
		if lack := c.limit[d] - free[d]; lack > 0 {
			short += float32(lack) / float32(c.limit[d])
		}
	}
	if c.needs != nil && !s.hasDevices(c, slot) {
		short++
	}
	if s.portsOf(c, slot) > r.ports || !s.hasNumbers(c, slot) {
		short++
	}
	return short
}
