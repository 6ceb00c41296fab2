package placement

import (
	"cmp"
	"maps"
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

// part is what is held of a machine for some asks.
type part struct {
	c  *class // what these want there in all
	at chance
}

// mostHeldFor is for how many tasks machines are held together: the search for them looks, for each task, at what is held
// for the others, in each pass.
const mostHeldFor = 64

// hold holds machines for all asks, if one of them has waited for long, and says so in the decisions
// about them, which are in their order. It reports whether it does.
func (g *gathering) hold(decisions []Decision) bool {
	s := g.snapshot
	var waited time.Duration
	for i := range g.asks {
		waited = max(waited, g.asks[i].Waited)
	}
	after := s.reserveAfter()
	if len(g.asks) > mostHeldFor || after < 0 || waited < after || slices.ContainsFunc(s.holds, func(h hold) bool { return h.gang }) || !g.mayHold() {
		return false
	}
	places, parts, ok := g.parts()
	if !ok {
		return false
	}
	var room, next time.Time
	known := true
	names := make([]string, 0, len(parts))
	for slot, x := range parts {
		names = append(names, s.nodes.At(slot).Name)
		known = known && !x.at.room.IsZero()
		if x.at.room.After(room) {
			room = x.at.room
		}
		if next.IsZero() || !x.at.next.IsZero() && x.at.next.Before(next) {
			next = x.at.next
		}
	}
	if !known {
		room = time.Time{}
		if !s.reserves(waited) {
			return false
		}
	}
	slices.Sort(names)
	strict := false
	for i := range g.asks {
		a := &g.asks[i]
		d := &decisions[i]
		d.Why.Held, d.Why.Room, d.RoomUntil, d.Why.Holds = s.nodes.At(places[i]).Name, room, next, names
		strict = strict || s.isOverdue(a, d.Why.Held)
	}
	for _, name := range names {
		slot, _ := s.slots.Get(name)
		x := parts[slot]
		s.addHold(hold{slot: slot, c: x.c, room: room, spare: x.at.spare, strict: strict, gang: true, task: g.asks[0].Name})
	}
	return true
}

// mayHold reports whether all have a place that have to once these have, and none has to be where it
// is because of others: which machines these need is not known before they have room.
func (g *gathering) mayHold() bool {
	g.describe()
	r := rollOf(g.snapshot, g.must, g.asks)
	for i := range g.asks {
		a := &g.asks[i]
		r.add(a.Name.JobName, 1)
		if a.On != "" || len(a.PerDomain)+len(a.MaxSkew) > 0 {
			return false
		}
	}
	return len(r.lacks()) == 0 && !slices.ContainsFunc(g.kinds, func(k kind) bool { return k.kin != nil && len(k.kin.must) > 0 })
}

// parts finds the machines that are to be held: that of each ask, by its place among them, and
// what is held of each.
func (g *gathering) parts() (places []int32, parts map[int32]part, ok bool) {
	places, parts = make([]int32, len(g.asks)), map[int32]part{}
	order := g.ordered(func(a, b *kind) int { return cmp.Compare(b.size, a.size) })
	for _, i := range order {
		k := &g.kinds[g.kindOf[g.asks[i].Name]]
		x, ok := g.findPart(k, &g.asks[i], parts)
		if !ok {
			return nil, nil, false
		}
		places[i], parts[x.at.slot] = x.at.slot, x
	}
	return places, parts, true
}

// findPart finds the machine for one ask beside what is held for others: that which was held for
// it before, unless another one is much earlier.
func (g *gathering) findPart(k *kind, a *Ask, parts map[int32]part) (best part, ok bool) {
	s, looks := g.snapshot, holdSearch
	var own *part
	if was, known := s.slots.Get(a.Held); known {
		if x, may := g.partOn(k, was, parts); may {
			own, looks = &x, holdLooks
		}
	}
	shared, isShared := g.bestShared(k, parts)
	free := *k.c
	free.avoid = maps.Clone(k.c.avoid)
	if free.avoid == nil {
		free.avoid = map[string]bool{}
	}
	for slot := range parts {
		free.avoid[s.nodes.At(slot).Name] = true
	}
	var list []part
	for _, x := range s.nearest(&free, looks) {
		if x, may := g.partOn(k, x.slot, parts); may {
			list = append(list, x)
		}
	}
	switch {
	case len(list) > 0:
		best = slices.MinFunc(list, func(a, b part) int { return s.compareChances(a.at, b.at) })
		if isShared && !earlier(&best.at, &shared.at, s.time) {
			best = shared
		}
	case isShared:
		best = shared
	default:
		return part{}, false
	}
	since := a.HeldSince
	if since.IsZero() {
		since = s.time
	}
	if own != nil && (own.at.slot == best.at.slot || !earlier(&best.at, &own.at, since)) {
		return *own, true
	}
	return best, true
}

// bestShared finds the machine for one ask among those that are held for others: so as few are
// held as do.
func (g *gathering) bestShared(k *kind, parts map[int32]part) (best part, ok bool) {
	for slot := range parts {
		x, may := g.partOn(k, slot, parts)
		if may && (!ok || g.snapshot.compareChances(x.at, best.at) < 0) {
			best, ok = x, true
		}
	}
	return best, ok
}

// partOn returns what is held of a machine with one ask more; false if it could not be there.
func (g *gathering) partOn(k *kind, slot int32, parts map[int32]part) (part, bool) {
	s, c := g.snapshot, k.c
	if x, is := parts[slot]; is {
		both := *k.c
		for d := range dims {
			both.limit[d] += x.c.limit[d]
		}
		both.ports += x.c.ports
		both.numbers = slices.Concat(both.numbers, x.c.numbers)
		both.needs = slices.Concat(both.needs, x.c.needs)
		if c = &both; repeats(both.numbers) {
			return part{}, false
		}
	}
	if !s.mayHold(c, slot) {
		return part{}, false
	}
	x := part{c, chance{slot: slot, short: s.shortOf(c, slot)}}
	if s.check(c, slot) == fine {
		x.at.room = s.time
		for d, v := range c.free(s.rows.At(slot)) {
			x.at.spare[d] = v - c.limit[d]
		}
	} else {
		s.expect(c, &x.at)
	}
	return x, true
}

// repeats reports whether a number of a port is wanted twice.
func repeats(numbers []uint16) bool {
	sorted := slices.Sorted(slices.Values(numbers))
	return len(slices.Compact(sorted)) < len(numbers)
}
