package placement

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Tasks that go together hold all machines that they need, as single tasks hold one: from when
// one of them has waited as long, those that have room first as far as that is known, until the
// last of these is expected to have it. One gang holds machines at a time: of two that hold a part
// each neither might ever begin.

// Holds returns for which of some asks, which Place found no room for, machines are to be held
// by what has become of the snapshot since, and which: Why.Held and Why.Room of a decision that
// is nothing else. They are asked in the order of Place; those are left out for which none is
// held.
func Holds(s *Snapshot, asks []*Ask) []Decision {
	s.merge()
	s.passes++
	p := newPass(s, 0)
	waiters := make([]entry, 0, len(asks))
	for _, a := range asks {
		if a.On != "" || a.AllocSet != (schema.JobName{}) {
			continue
		}
		job := s.jobID(a.Name.JobName)
		p.asked[job]++
		s.noteHeld(a)
		s.profileOf(job, a.Relations) // so that all terms are known
		waiters = append(waiters, entry{ask: a, job: job})
		if a.gathers() {
			p.gangs[crowdOf(a)] = append(p.gangs[crowdOf(a)], *a)
		}
	}
	slices.SortFunc(waiters, func(a, b entry) int {
		if c := cmp.Compare(b.ask.Priority, a.ask.Priority); c != 0 {
			return c
		}
		return compareWaiters(a, b)
	})
	for _, e := range waiters {
		if e.ask.gathers() {
			if first := p.returningBefore(e.ask); first != nil {
				p.holdTogether(p.gather(first))
			}
			p.holdTogether(p.gather(e.ask))
			continue
		}
		if !s.holdsMore(e.ask.Waited) {
			continue
		}
		d := Decision{Name: e.ask.Name}
		if p.hold(p.ready(e.ask, e.job), e.ask, &d); d.Why.Held != "" {
			p.out = append(p.out, d)
		}
	}
	p.end()
	return p.out
}

// holdTogether holds machines for asks of which nothing was decided; nil for none.
func (p *pass) holdTogether(g *gathering) {
	if g == nil {
		return
	}
	from := len(p.out)
	for i := range g.asks {
		p.out = append(p.out, Decision{Name: g.asks[i].Name})
	}
	if !g.hold(p.out[from:]) {
		p.out = p.out[:from]
	}
}

// mostHeldFor is for how many tasks machines are held together: the search for them looks, for each task, at what is held
// for the others, in each pass.
const mostHeldFor = 256

// hold holds machines for all asks, if one of them has waited for long, and says so in the decisions
// about them, which are in their order. It reports whether it does.
func (g *gathering) hold(decisions []Decision) bool {
	s := g.snapshot
	var waited time.Duration
	for i := range g.asks {
		waited = max(waited, g.asks[i].Waited)
	}
	after := s.reserveAfter()
	if len(g.asks) > mostHeldFor || after < 0 || waited < after || !g.mayHold() || slices.ContainsFunc(s.holds, func(h hold) bool { return h.gang && !h.room.IsZero() }) {
		return false
	}
	p := g.plan()
	if p == nil || p.all.room.IsZero() && (!s.reserves(waited) || slices.ContainsFunc(s.holds, func(h hold) bool { return h.gang })) {
		return false
	}
	names := make([]string, 0, len(p.parts))
	for slot := range p.parts {
		names = append(names, s.nodes.At(slot).Name)
	}
	slices.Sort(names)
	strict := false
	for i := range g.asks {
		a, d := &g.asks[i], &decisions[i]
		d.Why.Held, d.Why.Room, d.RoomUntil, d.Why.Holds = s.nodes.At(p.places[i]).Name, p.all.room, p.all.next, names
		strict = strict || s.isOverdue(a, d.Why.Held)
	}
	for _, name := range names {
		slot, _ := s.slots.Get(name)
		x := p.parts[slot]
		c := *x.c
		c.kin = x.kin // what others have in the way of this is not known, see suffices
		if p.all.room.IsZero() {
			x.at.spare = s.spareWhoeverGoes(&c, slot)
		}
		s.addHold(hold{slot: slot, c: &c, room: p.all.room, spare: x.at.spare, strict: strict, gang: true, task: g.asks[0].Name, holder: g.holder})
	}
	return true
}

// mayHold reports whether all have a place that have to once these have.
func (g *gathering) mayHold() bool {
	r := rollOf(g.snapshot, g.must, g.asks)
	for i := range g.asks {
		a := &g.asks[i]
		if r.add(a.Name.JobName, 1); a.On != "" {
			return false
		}
	}
	return len(r.lacks()) == 0
}

// tooMany returns the first kind of which some have room in the cell when it is empty and all machines are
// up, but not all have; nil if there is none.
func (g *gathering) tooMany() *TooMany {
	s := g.snapshot
	g.describe()
	for i := range g.kinds {
		k := &g.kinds[i]
		room := 0
		for slot := int32(0); slot < s.nodes.Len() && room < len(k.asks); slot++ {
			switch r := s.rows.At(slot); s.allows(k.c, slot, r) {
			case isTainted, isConstrained, hasNoneOf, hasNoDevice:
			default:
				if r.state != stateGone {
					room += s.fitsHowMany(k.c, slot)
				}
			}
		}
		if room > 0 && room < len(k.asks) {
			return &TooMany{g.asks[k.asks[0]].Name.JobName.Short(), len(k.asks), room}
		}
	}
	return nil
}
