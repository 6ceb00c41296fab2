package placement

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/placement/layout"
)

// domainLooks is in how many domains of an attribute machines are looked for, where the asks have to be
// in one: those that have the most room now.
const domainLooks = 8

// holdPlan is which machines are to be held for some of the asks of a gathering.
type holdPlan struct {
	*gathering
	within map[*kind]domainOf // where those of a kind have to be
	// fork has what is planned so far as tasks that take nothing: so relations and the spread of jobs
	// are as they will be. What others have there now counts, too, although it may have gone by then.
	fork   *Snapshot
	places []int32 // by ask
	parts  map[int32]part
	lists  map[*kind]*chances
	// all is what they wait for together: when the last of them has room, zero if that of one is not
	// known; and when the first of the tasks that are in the way should have gone. short is the sum.
	all chance
}

// domainOf is a domain of an attribute.
type domainOf struct {
	column *layout.Column
	value  int32
}

// part is what is held of a machine for some asks.
type part struct {
	c   *class // what these want there in all, but for relations
	kin *kin   // relations of one of them; nil for none
	at  chance
}

// chances are the machines that an ask of a kind may be held.
type chances struct {
	full *class   // of the fork
	near []chance // that lack the least first, each as if nothing else were held there
	seen []bool   // of which of them it is known when there is room
	// shared is what would be held of a machine with one more, as long as what is held there is that.
	shared map[int32]offer
}

// offer is what would be held of a machine with one ask more.
type offer struct {
	beside *class // what is held there
	part
	may bool
}

// plan finds the machines that are to be held; nil if there are none.
func (g *gathering) plan() *holdPlan {
	g.describe()
	g.rank()
	order := g.ordered(func(a, b *kind) int { return cmp.Compare(b.size, a.size) })
	within := map[*kind]domainOf{}
	for _, c := range g.nearColumns() {
		for _, b := range g.bands(c.column) {
			if !g.confine(b.kinds, c.column, order, within) {
				return nil
			}
		}
	}
	return g.planFor(order, within)
}

// confine chooses the domain of an attribute that some kinds have to be in: that in which machines were
// held before, unless another one is much earlier.
func (g *gathering) confine(kinds []*kind, column *layout.Column, order []int, within map[*kind]domainOf) bool {
	own := int32(0)
	var theirs []int
	for _, i := range order {
		if k := &g.kinds[g.kindOf[g.asks[i].Name]]; slices.Contains(kinds, k) {
			theirs = append(theirs, i)
			if slot, known := g.snapshot.slots.Get(g.asks[i].Held); known {
				own = column.At[slot]
			}
		}
	}
	since := g.asks[theirs[0]].HeldSince
	if since.IsZero() {
		since = g.snapshot.time
	}
	var best, was *holdPlan
	for _, v := range g.domainsToHold(kinds, column, own) {
		in := maps.Clone(within)
		for _, k := range kinds {
			in[k] = domainOf{column, v}
		}
		switch p := g.planFor(theirs, in); {
		case p == nil:
		case v == own:
			was = p
		case best == nil || g.snapshot.compareChances(p.all, best.all) < 0:
			best = p
		}
	}
	if was != nil && (best == nil || !earlier(&best.all, &was.all, since)) {
		best = was
	}
	if best == nil {
		return false
	}
	maps.Copy(within, best.within)
	return true
}

// domainsToHold returns the domains of an attribute in which machines may be held for some kinds, those with the
// most room now first; and one that is given, if it is one of them, however much it has.
func (g *gathering) domainsToHold(kinds []*kind, column *layout.Column, own int32) (out []int32) {
	s := g.snapshot
	free, short := make([]float64, len(column.Values)), make([]bool, len(column.Values))
	for _, k := range kinds {
		room := make([]int, len(column.Values))
		for slot := range s.nodes.Len() {
			if v := column.At[slot]; v > 0 && s.mayHold(k.c, slot) {
				room[v] += s.fitsHowMany(k.c, slot)
				free[v] += float64(min(int(s.roomFor(k.c, slot)), len(k.asks)))
			}
		}
		for v, n := range room {
			short[v] = short[v] || n < len(k.asks)
		}
	}
	for v := int32(1); int(v) < len(column.Values); v++ {
		if !short[v] {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b int32) int {
		return cmp.Or(cmp.Compare(boolByte(b == own), boolByte(a == own)), cmp.Compare(free[b], free[a]), cmp.Compare(column.Values[a], column.Values[b]))
	})
	return out[:min(len(out), domainLooks)]
}

// planFor finds the machines that are to be held for some of the asks, in their order.
func (g *gathering) planFor(order []int, within map[*kind]domainOf) *holdPlan {
	p := &holdPlan{
		gathering: g, within: within, fork: g.snapshot.Fork(), places: make([]int32, len(g.asks)), parts: map[int32]part{}, lists: map[*kind]*chances{},
	}
	p.fork.merge()
	defer func() {
		p.fork.Release()
		g.snapshot.merge()
	}()
	known := true
	for _, i := range order {
		a := &g.asks[i]
		k := &g.kinds[g.kindOf[a.Name]]
		x, ok := p.find(k, a)
		if !ok {
			return nil
		}
		slot := x.at.slot
		p.places[i], p.parts[slot] = slot, x
		p.fork.hold(task{taskKey: taskKey{p.chancesOf(k).full.job, int32(a.Name.Index), slot, a.Generation}, priority: k.c.priority, inAlloc: -1, profile: k.profile})
	}
	for _, x := range p.parts {
		known = known && !x.at.room.IsZero()
		p.all.short += x.at.short
		if x.at.room.After(p.all.room) {
			p.all.room = x.at.room
		}
		if p.all.next.IsZero() || !x.at.next.IsZero() && x.at.next.Before(p.all.next) {
			p.all.next = x.at.next
		}
	}
	if !known {
		p.all.room = time.Time{}
	}
	return p
}

// chancesOf returns the machines that may be held for an ask of a kind, as far as others are no matter.
func (p *holdPlan) chancesOf(k *kind) *chances {
	if l := p.lists[k]; l != nil {
		return l
	}
	s, in := p.snapshot, p.within[k]
	l := &chances{full: p.fork.single(&p.asks[k.asks[0]]), shared: map[int32]offer{}}
	p.lists[k] = l
	for slot := range s.nodes.Len() {
		if (in.column == nil || in.column.At[slot] == in.value) && s.mayHold(k.c, slot) {
			l.near = append(l.near, chance{slot: slot, short: s.shortOf(k.c, slot)})
		}
	}
	slices.SortFunc(l.near, s.compareShort)
	l.seen = make([]bool, len(l.near))
	return l
}

// takes reports whether a machine would take one ask more besides those that are planned, as far as relations and
// spread go.
func (p *holdPlan) takes(l *chances, slot int32) bool {
	return p.fork.admits(l.full, slot, p.fork.rows.At(slot)) == fine
}

// find finds the machine for one ask beside what is held for others: that which was held for
// it before, unless another one is much earlier.
func (p *holdPlan) find(k *kind, a *Ask) (best part, ok bool) {
	s, l, looks := p.snapshot, p.chancesOf(k), holdSearch
	var own *part
	if was, known := s.slots.Get(a.Held); known {
		if x, may := p.partOn(k, l, was); may {
			own, looks = &x, holdLooks
		}
	}
	for i := range l.near {
		at := &l.near[i]
		if _, held := p.parts[at.slot]; held || !p.takes(l, at.slot) {
			continue
		}
		if looks--; looks < 0 {
			break
		}
		if !l.seen[i] {
			l.seen[i] = true
			s.await(k.c, at)
		}
		if !ok || s.compareChances(*at, best.at) < 0 {
			best, ok = part{k.c, k.kin, *at}, true
		}
	}
	if shared, is := p.bestShared(k, l); is && (!ok || !earlier(&best.at, &shared.at, s.time)) {
		best, ok = shared, true // so as few are held as do
	}
	since := a.HeldSince
	if since.IsZero() {
		since = s.time
	}
	if own != nil && (own.at.slot == best.at.slot || !earlier(&best.at, &own.at, since)) {
		return *own, true
	}
	return best, ok
}

// bestShared finds the machine for one ask among those that are held for others.
func (p *holdPlan) bestShared(k *kind, l *chances) (best part, ok bool) {
	for slot := range p.parts {
		x, may := p.partOn(k, l, slot)
		if may && (!ok || p.snapshot.compareChances(x.at, best.at) < 0) {
			best, ok = x, true
		}
	}
	return best, ok
}

// partOn returns what is held of a machine with one ask more; false if it could not be there.
func (p *holdPlan) partOn(k *kind, l *chances, slot int32) (part, bool) {
	s, held := p.snapshot, p.parts[slot].c
	if in := p.within[k]; in.column != nil && in.column.At[slot] != in.value || !p.takes(l, slot) {
		return part{}, false
	}
	if o, known := l.shared[slot]; known && o.beside == held {
		return o.part, o.may
	}
	o := offer{beside: held, part: part{k.c, cmp.Or(p.parts[slot].kin, k.kin), chance{slot: slot}}, may: true}
	if held != nil {
		o.c = k.c.beside(held)
		o.may = !repeats(o.c.numbers)
	}
	if o.may = o.may && s.mayHold(o.c, slot); o.may {
		o.at.short = s.shortOf(o.c, slot)
		s.await(o.c, &o.at)
	}
	l.shared[slot] = o
	return o.part, o.may
}

// repeats reports whether a number of a port is wanted twice.
func repeats(numbers []uint16) bool {
	sorted := slices.Sorted(slices.Values(numbers))
	return len(slices.Compact(sorted)) < len(numbers)
}
