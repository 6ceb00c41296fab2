package placement

import "github.com/musterhq/muster/schema"

// Asks are decided one after the other, but what they need of the machines is looked up for
// several of them at a time, by workers, as in Omega: each works on the snapshot as it is
// before the first of them is decided, and writes to nothing but a class of its own. At its
// turn an ask takes what was found of those machines that are as they were, and looks again
// at the others, machine by machine. So the decisions are those that were made without
// workers, however many there are and however they are scheduled.

// aheadAsks is how many asks are looked up at a time. Each that is decided changes a machine,
// at which those after it look again: with more asks this is more of the work, with fewer the
// workers wait for each other more often.
const aheadAsks = 32

// look is what a machine has said to a class.
type look struct {
	version uint32  // of the machine
	score   float32 // infeasible if it has no room
}

// foresight is what was looked up for a class ahead of its turn: the machines of a ring, from
// its start.
type foresight struct {
	pass  int // of which it is
	ring  *layout
	flips int
	looks []look
}

// outlook is a class to be looked up, and what is to be found out.
type outlook struct {
	class  *class
	layout *layout
	lone   bool
	tight  bool // there may be no room: ask each machine for the reason
}

// decideInTurn decides asks in their order.
func (p *pass) decideInTurn(turns []entry) {
	for len(turns) > 0 {
		next := turns[:min(aheadAsks, len(turns))]
		turns = turns[len(next):]
		if p.snapshot.parallel != nil {
			p.lookAhead(next)
		}
		for _, e := range next {
			p.decide(e)
		}
		p.forget()
	}
}

// lookAhead has the machines looked at for asks whose turn comes next.
func (p *pass) lookAhead(next []entry) {
	for _, e := range next {
		if o, ok := p.outlookOf(e); ok {
			p.ahead = append(p.ahead, o)
		}
	}
	for i := range p.ahead {
		p.ahead[i].class.foresight.looks = p.looks[i]
	}
	if len(p.ahead) > 1 {
		p.snapshot.parallel(len(p.ahead), func(i int) { p.ahead[i].lookUp(p.snapshot) })
	}
}

// forget gives up what was looked up and is not needed any more: it is much, and the classes
// stay.
func (p *pass) forget() {
	for i := range p.ahead {
		f := &p.ahead[i].class.foresight
		p.snapshot.looked += len(f.looks)
		p.looks[i], f.looks = f.looks[:0], nil
	}
	p.ahead = p.ahead[:0]
}

// outlookOf returns what is to be found out for an ask; false if nothing is, or has been. All
// that the workers read and that is made when it is first asked for is made here.
func (p *pass) outlookOf(e entry) (outlook, bool) {
	s, a := p.snapshot, e.ask
	if a.Together > 0 && !e.evicted || a.On != "" || a.Prefer != "" || a.Last != "" || a.AllocSet != (schema.JobName{}) {
		return outlook{}, false
	}
	c := p.classOf(a, e.job)
	if c.pass == s.passes || c.foresight.pass == s.passes || c.job >= 0 && c.bounds != nil {
		return outlook{}, false
	}
	o := outlook{
		class: c, layout: s.layoutFor(s.spreadOf(c.ask)), tight: p.tight || c.refusal.by != nil,
		lone: c.score == nil && c.job < 0 && !s.options.NoRelaxed,
	}
	if c.job >= 0 && len(o.layout.column.values) > 1 {
		s.tallyOf(c.job, o.layout.column)
	}
	relaxed := !s.options.NoRelaxed && !s.small
	if !o.lone && relaxed && !o.tight {
		return outlook{}, false // a sample, for all asks of the class: that is little of their work
	}
	c.foresight.pass, c.foresight.ring, c.foresight.flips = s.passes, o.layout, s.kindred.flipNow()
	return o, true
}

// lookUp finds out what is to be found out for a class. It writes to that only.
func (o *outlook) lookUp(s *Snapshot) {
	c := o.class
	switch {
	case o.tight && s.refuse(c) == 0:
		o.foreseeChange(s)
	case o.lone:
		if room := o.lookAlongRing(s); !room && s.refuse(c) == 0 {
			o.foreseeChange(s)
		}
	case s.options.NoRelaxed || s.small:
		s.update(c)
	}
}

// foreseeChange finds what would have to change so that a class fits for which there is no
// room.
func (o *outlook) foreseeChange(s *Snapshot) {
	if r := &o.class.refusal; r.stale && o.class.kin == nil {
		r.change, r.stale = s.smallestChange(o.class), false
	}
}

// lookAlongRing looks at as many machines as it takes for a lone ask, and reports whether any
// has room.
func (o *outlook) lookAlongRing(s *Snapshot) (room bool) {
	c, enough := o.class, s.enough()+1
	if s.small {
		enough = len(o.layout.ring)
	}
	for _, slot := range o.layout.ring {
		if enough == 0 {
			break
		}
		seen := look{s.rows.at(slot).version, infeasible}
		if s.check(c, slot) == fine {
			seen.score = s.worth(c, slot)
			room = true
			enough--
		}
		c.foresight.looks = append(c.foresight.looks, seen)
	}
	return room
}

// foreseen returns what was looked up for a lone ask; nil for nothing that holds.
func (s *Snapshot) foreseen(c *class) []look {
	f := &c.foresight
	if f.pass != s.passes || f.ring != c.layout || c.kin != nil && f.flips != s.kindred.flipNow() {
		return nil
	}
	return f.looks
}
