package placement

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/placement/packages"
	"github.com/musterhq/muster/placement/tournament"
	"github.com/musterhq/muster/schema"
)

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
	at      int32   // place in the ring
	version uint32  // of the machine
	score   float32 // infeasible if it has no room
}

// foresight is what was looked up for a class ahead of its turn: machines of a ring, in its
// order.
type foresight struct {
	pass  int // of which it is
	ring  *layout.Layout
	flips int
	looks []look
}

// outlook is a class to be looked up, and what is to be found out.
type outlook struct {
	class  *class
	layout *layout.Layout
	lone   bool
	tight  bool // there may be no room: ask each machine for the reason
}

// decideInTurn decides asks in their order.
func (p *pass) decideInTurn(turns []entry) {
	for len(turns) > 0 && !p.failed() {
		next := turns[:min(aheadAsks, len(turns))]
		turns = turns[len(next):]
		p.snapshot.gauge()
		if p.snapshot.parallel != nil {
			p.lookAhead(next)
		}
		for _, e := range next {
			if p.decide(e); p.failed() {
				break
			}
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
	if a.gathers() && !e.evicted || a.On != "" || a.Prefer != "" || a.Last != "" || a.AllocSet != (schema.JobName{}) {
		return outlook{}, false
	}
	c := p.classOf(a, e.job)
	if c.pass == s.passes || c.foresight.pass == s.passes || c.job >= 0 && c.bounds != nil || c.skews != nil || c.nest != nil {
		return outlook{}, false
	}
	s.weighOpening(c)
	o := outlook{
		class: c, layout: s.layoutFor(c.spread), tight: p.tight || c.refusal.by != nil,
		lone: c.Score == nil && c.job < 0 && !s.options.NoRelaxed,
	}
	if c.job >= 0 && len(o.layout.Column.Values) > 1 {
		s.tallyOf(c.job, o.layout.Column)
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
		enough = len(o.layout.Ring)
	}
	p := s.peaksFor(o.layout)
	for at := 0; at < len(o.layout.Ring) && enough > 0; at++ {
		if n := p.Full(at, c.limit); n > 0 {
			at += n - 1
			continue
		}
		slot := o.layout.Ring[at]
		seen := look{int32(at), s.rows.At(slot).version, tournament.Infeasible}
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

// manyExamined is how many machines a search has to look at so that bounds of what is free are
// worth their while.
const manyExamined = 1024

// walk is a search along a ring, for machines that have room.
type walk struct {
	s     *Snapshot
	c     *class
	l     *layout.Layout
	peaks *layout.Peaks
	looks []look // that were made ahead, as far as they are still to come
}

func (s *Snapshot) walk(c *class) walk {
	return walk{s: s, c: c, l: c.layout, peaks: s.peaksFor(c.layout)}
}

// skip returns how many machines need not be looked at from a place in the ring on, of so many
// that are left to be, since they are full.
func (w *walk) skip(at, left int) int {
	n := min(w.peaks.Full(at, w.c.limit), left)
	w.c.examined += n
	return n
}

// look looks at the machine in a place of the ring. It returns its score, if it was looked at
// ahead and is as it was.
func (w *walk) look(at int) (score float32, ahead, room bool) {
	s, c := w.s, w.c
	for len(w.looks) > 0 && int(w.looks[0].at) < at { // these are full now
		w.looks = w.looks[1:]
	}
	lacks := true
	if len(w.looks) > 0 && int(w.looks[0].at) == at {
		if ahead = w.looks[0].version == s.rows.At(w.l.Ring[at]).version; !ahead {
			s.lookedAgain++
		}
	}
	if ahead {
		score = w.looks[0].score
		room = score > tournament.Infeasible
	} else {
		a := s.check(c, w.l.Ring[at])
		room, lacks = a == fine, a.lacksRoom()
	}
	if w.peaks.Saw(at, room, lacks) {
		w.peaks.Lower(at, func(slot int32) [3]int64 { return s.rows.At(slot).mostFree() })
	}
	if c.examined++; c.examined == manyExamined && w.peaks == nil {
		w.peaks = s.makePeaks(w.l)
	}
	return score, ahead, room
}

// sampleFavoured appends to the candidates of a class those with room of the machines that it
// favours, until enough of them may get a task, in each outer domain. That is less than a sample
// has: of what many meet it has more.
func (s *Snapshot) sampleFavoured(c *class, enough int) {
	list := s.favoured(c).list
	if len(list) == 0 {
		return
	}
	q := c.quota()
	for _, slot := range list {
		if enough <= 0 && !q.short() {
			return
		}
		if s.isCandidate(c, slot) && q.take(slot, enough > 0) {
			c.slots = append(c.slots, c.layout.At[slot])
			if c.isOpen(slot) {
				enough--
			}
		}
	}
}

// quota returns how many candidates a class needs in each outer domain; nil if there are none.
func (c *class) quota() *quota {
	if c.Outer == nil {
		return nil
	}
	return c.nest.quotaOf(c.Outer, c.layout, max(c.waiting, 1))
}

// isOpen reports whether a candidate may get a task now, as far as domains are ranked.
func (c *class) isOpen(slot int32) bool {
	return c.ranked == nil || c.ranked.open[c.ranked.column.At[slot]]
}

// sample appends to the candidates of a class what has room along the ring, from where the
// last search ended, until enough of it may get a task, in each outer domain. It reports
// whether it has passed over some that has room.
func (s *Snapshot) sample(c *class, enough int) (passed bool) {
	w, q := s.walk(c), c.quota()
	c.lenient = true // see isCandidate
	for total := len(w.l.Ring); c.examined < total && (enough > 0 || q.short()); {
		if n := w.skip(c.cursor, total-c.examined); n > 0 {
			c.cursor = (c.cursor + n) % total
			continue
		}
		slot := w.l.Ring[c.cursor]
		if _, _, room := w.look(c.cursor); room && q.take(slot, enough > 0) {
			c.slots = append(c.slots, w.l.At[slot])
			if c.isOpen(slot) {
				enough--
			}
		}
		c.cursor = (c.cursor + 1) % total
	}
	c.lenient = false
	return q != nil && q.passed
}

// A sample of the machines may have none of those that meet best what a class wishes for: few do,
// or few have room. So a search among some of the machines looks first at these: at all that
// differ in what they meet of all wishes together, the best first, until enough have room. That many
// meet each of two wishes does not mean that many meet both.

// favours are lists of machines, each by what it is about.
type favours struct {
	lists map[string]favourites
	held  int // machines in all lists
	// last is the list of the last class that prefers to be near something, as of flips: such a class
	// asks again after each task that goes.
	last struct {
		class *class
		flips int
		favourites
	}
}

// favourites are machines that a class favours, see favoured. They are never written to.
type favourites struct {
	list []int32
	ends []int32 // in the list, of those that meet the same
}

// favouredMost is how many machines all remembered lists may have together: some megabytes.
const favouredMost = 1 << 20

// forget voids all lists.
func (f *favours) forget() { *f = favours{} }

// favoured returns the machines that meet more of what a class wishes for than others do: of
// preferences, packages, alternatives of devices, and relations together. Those that meet the most come first, and
// equal ones in the order of the ring. Those that meet the least are left out: a search finds
// them anyway.
func (s *Snapshot) favoured(c *class) favourites {
	near := c.kin != nil && c.kin.gathers()
	if !c.wishful() || s.options.Policy != "" && s.options.Policy != Hybrid {
		return favourites{}
	}
	if near {
		return s.favouredNear(c)
	}
	key := c.wishKey(s.scratch[:0])
	s.scratch = key
	f, ok := s.favours.lists[string(key)]
	if !ok {
		f = s.byMerit(c, nil)
		n := len(f.list) + len(f.ends) + 1
		if s.favours.held += n; s.favours.held > favouredMost || s.favours.lists == nil {
			s.favours.lists, s.favours.held = map[string]favourites{}, n
		}
		s.favours.lists[string(key)] = f
	}
	return f
}

// favouredNear is favoured for a class that prefers to be near something: the list changes when in a
// domain the first such task comes or the last goes, which is known of all domains but single machines.
func (s *Snapshot) favouredNear(c *class) favourites {
	last, flips := &s.favours.last, s.kindred.flipNow()
	if last.class != c || last.flips != flips || s.kindred.byMachine(c.kin) {
		last.class, last.flips, last.favourites = c, flips, s.byMerit(c, s.estrangement(c.kin))
	}
	return last.favourites
}

// wishful reports whether some machines may meet more of what a class wishes for than others.
func (c *class) wishful() bool {
	return len(c.wishes)+len(c.packages) > 0 || len(c.needs) > 1 || c.kin != nil && c.kin.gathers()
}

// wishKey appends all on which the order of machines depends that a class favours, but for relations.
func (c *class) wishKey(b []byte) []byte {
	b = appendStrings(b, c.spread) // the ring
	for i := range c.wishes {
		w := &c.wishes[i]
		b = appendConstraints(b, []Constraint{w.Constraint})
		b = binary.AppendVarint(b, int64(w.weight*100))
	}
	for _, p := range c.packages {
		b = binary.AppendVarint(append(b, 'p'), int64(p))
	}
	if len(c.needs) > 1 {
		b = appendDevices(append(b, 'd'), c.ask.Devices)
		for _, all := range c.ask.FirstOf {
			b = appendDevices(append(b, 'h'), all)
		}
	}
	return b
}

// byMerit returns the machines that a class favours. far is what is missing of relations, see
// estrangement.
func (s *Snapshot) byMerit(c *class, far []estrangement) favourites {
	ring := s.layoutFor(c.spread).Ring
	level := make([]int32, len(ring))
	var sums []float32 // of the levels
	var count []int32  // of machines
	last := int32(-1)
	known := map[float32]int32{}
	for i, slot := range ring {
		sum := s.weights.Wish * c.missed(slot)
		if len(c.packages) > 0 {
			sum += s.weights.Packages * packages.Lacking(s.nodes.At(slot).holds, c.packages)
		}
		if len(c.needs) > 1 { // free or not
			if which := c.needs.Exist(s.nodes.At(slot).devices); which >= 0 {
				sum += s.weights.Wish * float32(which)
			} else {
				sum += s.weights.Wish * float32(len(c.needs))
			}
		}
		for k := range far {
			sum += s.weights.Wish * far[k].missing[far[k].column.At[slot]]
		}
		if last < 0 || sums[last] != sum {
			var ok bool
			if last, ok = known[sum]; !ok {
				last = int32(len(sums))
				known[sum] = last
				sums, count = append(sums, sum), append(count, 0)
			}
		}
		level[i] = last
		count[last]++
	}
	from, ends := startsOf(sums, count)
	if len(ends) == 0 {
		return favourites{}
	}
	list := make([]int32, ends[len(ends)-1])
	for i, slot := range ring {
		if at := from[level[i]]; at >= 0 {
			list[at] = slot
			from[level[i]]++
		}
	}
	return favourites{list, ends}
}

// startsOf returns where in a list the machines of each level begin, and where they end, in the
// order of the list: the least sum first. The level of the greatest sum is none of them: it begins
// at -1.
func startsOf(sums []float32, count []int32) (from, ends []int32) {
	order := make([]int32, len(sums))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(sums[a], sums[b]) })
	from = make([]int32, len(sums))
	total := int32(0)
	for i, k := range order {
		if i == len(order)-1 {
			from[k] = -1
			break
		}
		from[k] = total
		total += count[k]
		ends = append(ends, total)
	}
	return from, ends
}

// estrangement is what a preferred relation misses in each domain.
type estrangement struct {
	column  *layout.Column
	missing []float32 // by value
}

// gathers reports whether a class prefers to be near something.
func (x *kin) gathers() bool {
	for i := range x.prefers {
		if !x.prefers[i].apart {
			return true
		}
	}
	return false
}

// estrangement returns what each preferred relation misses in each domain.
func (s *Snapshot) estrangement(x *kin) (out []estrangement) {
	for i := range x.prefers {
		t := &x.prefers[i]
		e := estrangement{t.column, make([]float32, len(t.column.Values))}
		for v := range e.missing {
			if s.kindred.isIn(t, int32(v), nil) == t.apart {
				e.missing[v] = t.weight
			}
		}
		out = append(out, e)
	}
	return out
}

// bestOf is the two best of the machines that were looked at.
type bestOf struct {
	layout        *layout.Layout
	first, second int32 // slots, or -1
	best, next    float32
}

// take takes a machine into account that has room.
func (b *bestOf) take(slot int32, w float32) {
	at := b.layout.At
	switch {
	case b.first < 0 || w > b.best || w == b.best && at[slot] < at[b.first]:
		b.first, b.second, b.best, b.next = slot, b.first, w, b.best
	case b.second < 0 || w > b.next || w == b.next && at[slot] < at[b.second]:
		b.second, b.next = slot, w
	}
}

// bestForLone finds the best machines for a lone ask as examine does, but caches
// nothing, since most such asks stay alone.
func (s *Snapshot) bestForLone(c *class) (first, second int32) {
	c.layout = s.layoutFor(c.spread)
	w, enough := s.walk(c), s.enough()+1
	if s.small {
		enough = len(w.l.Ring)
	}
	b := bestOf{layout: w.l, first: -1, second: -1}
	c.examined, c.feasible = 0, 0
	if enough < len(w.l.Ring) {
		for _, slot := range s.favoured(c).list {
			if c.feasible > s.enough()/2 {
				break
			}
			if s.check(c, slot) == fine {
				c.feasible++
				b.take(slot, s.worth(c, slot))
			}
		}
		enough += c.feasible
	}
	w.looks = s.foreseen(c)
	for at := 0; at < len(w.l.Ring) && c.feasible < enough; at++ {
		if n := w.skip(at, len(w.l.Ring)-at); n > 0 {
			at += n - 1
			continue
		}
		score, ahead, room := w.look(at)
		slot := w.l.Ring[at]
		if !room || slot == b.first || slot == b.second {
			continue
		}
		if !ahead {
			score = s.worth(c, slot)
		}
		c.feasible++
		b.take(slot, score)
	}
	c.examined = max(c.examined, c.feasible)
	return b.first, b.second
}

// peaksFor returns the bounds of what is free along a ring; nil if there are none.
func (s *Snapshot) peaksFor(l *layout.Layout) *layout.Peaks {
	for _, p := range s.peaks {
		if p.Layout == l {
			return p
		}
	}
	return nil
}

// makePeaks has bounds kept along a ring from now on. Forks have none: they are gone before
// that is worth it.
func (s *Snapshot) makePeaks(l *layout.Layout) *layout.Peaks {
	if s.forked || len(l.Ring) < 2*manyExamined {
		return nil
	}
	s.peaks = append(s.peaks, layout.NewPeaks(l))
	return s.peaks[len(s.peaks)-1]
}

// mostFree returns what is free on a machine for an ask of any priority.
func (r *row) mostFree() (free vector) {
	for d := range free {
		free[d] = max(r.byLimit[d], r.byReserv[d])
	}
	return free
}
