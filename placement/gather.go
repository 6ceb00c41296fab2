package placement

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/musterhq/muster/placement/layout"
)

// Asks that go together may have room in one order and not in another. When they have found none as
// others do, places are searched for in other ways, one after the other, until one does: the most
// constrained first, domain by domain where they have to be near each other, in other orders, and
// at last by going back where there is no room. What a search may cost is bounded in machines that
// are examined, so that its end is the same wherever it runs.
const (
	// searchGang is how many machines may be examined for one gang, and searchPass for all of a
	// pass: some tenths of a second. An ask that is decided counts as askCost machines.
	searchGang, searchPass = 1 << 17, 1 << 19
	askCost                = 16
	// mostRounds bounds how often ranks are passed on.
	mostRounds = 32
	// otherOrders is how many other orders are tried.
	otherOrders = 6
)

// search searches for places. It returns what was decided, nil if there are none, and whether it
// came to its end: not if others have used up what a pass may cost. Where asks have alternatives of devices,
// it is made once more with those first that want the least: what one task prefers may be all that there is.
func (g *gathering) search() (found []Decision, searched bool) {
	s := g.snapshot
	s.searches++
	for i := range g.asks { // what one has a claim on another one may need more
		s.release(s.jobID(g.asks[i].Name.JobName), g.asks[i].Name.Index)
	}
	found, searched = g.searchFor()
	if asks, fewer := withLeastDevices(g.asks); found == nil && searched && fewer {
		asks, g.asks = g.asks, asks
		g.forget()
		found, searched = g.searchFor()
		g.asks = asks
		g.forget()
	}
	return found, searched
}

// forget has the kinds be described anew.
func (g *gathering) forget() {
	for i := range g.kinds {
		g.kinds[i].c = nil
	}
}

// searchFor is search for the asks as they are.
func (g *gathering) searchFor() (_ []Decision, searched bool) {
	g.describe()
	if !g.measure() {
		return nil, true
	}
	budget := min(searchGang, g.pass.search)
	if budget <= 0 {
		return nil, false
	}
	left := budget
	if budget == searchGang {
		left = max(left, g.cost(attempt{})) // so that one order is tried, however many there are
	}
	from := left
	defer func() { g.pass.search -= from - left }()
	g.rank()
	order := g.order()
	for _, way := range []func(order []int, left *int) []Decision{g.inOneOrder, g.byDomain, g.inOtherOrders, g.backAndForth} {
		if found := way(order, &left); found != nil {
			return found, true
		}
	}
	return nil, budget == searchGang
}

// cost returns how many machines count as examined for an attempt.
func (g *gathering) cost(t attempt) int {
	classes := len(g.kinds)
	if t.policy == Random {
		classes = len(g.asks)
	}
	return classes*g.snapshot.slots.Len() + askCost*len(g.asks)
}

// describe finds out what the asks of each kind want.
func (g *gathering) describe() {
	s := g.snapshot
	var with []int32 // where one of them runs nothing is held for the others that would need its room
	for i := range g.must {
		if id, ok := s.jobIDs.Get(g.must[i].Job); ok {
			with = append(with, id)
		}
	}
	for i := range g.kinds {
		k := &g.kinds[i]
		if k.c != nil {
			continue
		}
		a := &g.asks[k.asks[0]]
		c := s.single(a)
		k.kin, k.profile, k.size = c.kin, s.profileOf(c.job, a.Relations), s.sizeOf(a)
		c.kin, c.bounds, c.skews, c.with = nil, nil, nil, with
		k.c = c
	}
}

// measure counts how many of each kind have room where. It reports false if there is not enough
// for one of them even if nothing of the others is anywhere: then no order helps.
func (g *gathering) measure() bool {
	s := g.snapshot
	for i := range g.kinds {
		k := &g.kinds[i]
		k.fits, k.total, k.machines, k.devices = make([]uint16, s.nodes.Len()), 0, 0, math.MaxInt
		if k.c.needs != nil {
			k.devices = 0
		}
		for slot := range s.nodes.Len() {
			if n := s.roomFor(k.c, slot); n > 0 {
				k.fits[slot] = n
				k.total += int(n)
				k.machines++
				if k.c.needs != nil {
					k.devices += k.c.needs.Match(s.nodes.At(slot).devices)
				}
			}
		}
	}
	return !slices.ContainsFunc(g.kinds, func(k kind) bool { return k.total < len(k.asks) })
}

// rank finds out what has to be decided after others of the gang, since it has to be near them.
func (g *gathering) rank() {
	var after [][2]int
	for i := range g.kinds {
		if len(g.kinds[i].near()) == 0 {
			continue
		}
		for j := range g.kinds {
			if i != j && g.follows(&g.kinds[i], &g.kinds[j]) {
				after = append(after, [2]int{i, j})
			}
		}
	}
	for changed, round := true, 0; changed && round < mostRounds; round++ {
		changed = false
		for _, e := range after {
			k, first := &g.kinds[e[0]], &g.kinds[e[1]]
			if k.rank <= first.rank && first.rank < len(g.kinds) {
				k.rank, changed = first.rank+1, true
			}
		}
	}
}

// follows reports whether one kind has to be near another one, and could not be without.
func (g *gathering) follows(k, other *kind) bool {
	return slices.ContainsFunc(k.near(), func(t tie) bool { return !t.self && g.picks(&t, other) })
}

// near returns what the tasks of a kind have to be near.
func (k *kind) near() (ties []tie) {
	if k.kin != nil {
		for _, t := range k.kin.must {
			if !t.apart {
				ties = append(ties, t)
			}
		}
	}
	return ties
}

// picks reports whether a tie is to tasks of a kind.
func (g *gathering) picks(t *tie, k *kind) bool {
	return k.profile > 0 && slices.Contains(g.snapshot.kindred.profiles.At(k.profile).matches, t.term)
}

// order returns the asks, the most constrained first: of those of a rank those that the fewest
// machines take, then those for which the fewest devices will do, then the largest.
func (g *gathering) order() []int {
	return g.ordered(func(a, b *kind) int {
		return cmp.Or(cmp.Compare(a.machines, b.machines), cmp.Compare(a.devices, b.devices), cmp.Compare(b.size, a.size))
	})
}

// ordered returns the asks by rank, and then as compare says of their kinds.
func (g *gathering) ordered(compare func(a, b *kind) int) (order []int) {
	list := make([]*kind, 0, len(g.kinds))
	for i := range g.kinds {
		list = append(list, &g.kinds[i])
	}
	slices.SortStableFunc(list, func(a, b *kind) int { return cmp.Or(cmp.Compare(a.rank, b.rank), compare(a, b)) })
	for _, k := range list {
		order = append(order, k.asks...)
	}
	return order
}

// attempt is a way to decide the asks.
type attempt struct {
	order  []int
	within map[*kind]Constraint // where those of a kind have to be besides
	policy Policy               // in the place of the cell's, if not ""
}

// try decides all asks on a fork; nil if one of them gets no place, or that would cost more
// than is left.
func (g *gathering) try(t attempt, left *int) []Decision {
	s, cost := g.snapshot, g.cost(t)
	if *left < cost {
		return nil
	}
	*left -= cost
	s.attempts++
	asks := slices.Clone(g.asks)
	for i := range g.kinds {
		k := &g.kinds[i]
		if c, ok := t.within[k]; ok {
			all := append(slices.Clone(asks[k.asks[0]].Constraints), c)
			for _, at := range k.asks {
				asks[at].Constraints = all
			}
		}
	}
	list := make([]Ask, 0, len(asks))
	for _, i := range t.order {
		list = append(list, asks[i])
	}
	fork := s.Fork()
	fork.options.ReserveAfter = -1
	if t.policy != "" {
		fork.options.Policy = t.policy
	}
	trial := newPass(fork, g.seed)
	trial.allOrNone, trial.inOrder = true, true
	decisions := trial.place(list)
	fork.Release()
	s.merge()
	placed := 0
	for i := range decisions {
		if d := &decisions[i]; !d.Evicted && d.Machine != "" {
			placed++
		}
	}
	if placed < len(list) {
		return nil
	}
	return decisions
}

func (g *gathering) inOneOrder(order []int, left *int) []Decision {
	return g.try(attempt{order: order}, left)
}

// inOtherOrders tries orders and policies that pack more tightly, or otherwise.
func (g *gathering) inOtherOrders(order []int, left *int) []Decision {
	bySize := g.ordered(func(a, b *kind) int { return cmp.Compare(b.size, a.size) })
	list := []attempt{{order: bySize}, {order: bySize, policy: BestFit}, {order: order, policy: BestFit}}
	ranks := make([]int, len(g.asks))
	for i := range g.kinds {
		for _, at := range g.kinds[i].asks {
			ranks[at] = g.kinds[i].rank
		}
	}
	for n := range otherOrders {
		mixed := slices.Clone(order)
		r := rand.New(rand.NewPCG(g.seed, uint64(n)))
		r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		slices.SortStableFunc(mixed, func(a, b int) int { return cmp.Compare(ranks[a], ranks[b]) })
		list = append(list, attempt{order: mixed, policy: []Policy{"", Random}[n%2]})
	}
	for _, t := range list {
		if found := g.try(t, left); found != nil {
			return found
		}
	}
	return nil
}

// band is kinds that have to be in one domain of an attribute.
type band struct {
	kinds  []*kind
	values []string // that have room for all of them, each kind by itself, the tightest first
}

// byDomain tries one domain after the other where the asks have to be near each other.
func (g *gathering) byDomain(order []int, left *int) []Decision {
	for _, c := range g.nearColumns() {
		if found := g.inDomains(order, c.column, c.name, left); found != nil {
			return found
		}
	}
	return nil
}

// nearColumn is an attribute in one domain of which some of the asks have to be.
type nearColumn struct {
	name   string
	column *layout.Column
}

// nearColumns returns those attributes, each once.
func (g *gathering) nearColumns() (list []nearColumn) {
	for i := range g.kinds {
		for _, t := range g.kinds[i].near() {
			if len(t.column.Values) > 1 && !slices.ContainsFunc(list, func(c nearColumn) bool { return c.column == t.column }) {
				list = append(list, nearColumn{g.snapshot.kindred.terms.At(t.term).By, t.column})
			}
		}
	}
	return list
}

// inDomains tries the domains of one attribute.
func (g *gathering) inDomains(order []int, column *layout.Column, name string, left *int) []Decision {
	bands := g.bands(column)
	ways := 1
	for i := range bands {
		b := &bands[i]
		if b.values = g.roomy(b.kinds, column); len(b.values) == 0 {
			return nil
		}
		ways = min(ways*len(b.values), searchGang)
	}
	if len(bands) == 0 {
		return nil
	}
	for way := range ways {
		t := attempt{order: order, within: map[*kind]Constraint{}}
		for i, n := len(bands)-1, way; i >= 0; i-- {
			b := &bands[i]
			at := n % len(b.values)
			n /= len(b.values)
			for _, k := range b.kinds {
				t.within[k] = Constraint{Attribute: name, Op: OpIn, Values: []string{b.values[alternate(at, len(b.values))]}}
			}
		}
		if found := g.try(t, left); found != nil {
			return found
		}
		if *left < g.cost(t) {
			return nil
		}
	}
	return nil
}

// alternate returns the i-th of a list that is taken from both ends in turn.
func alternate(i, n int) int {
	if i%2 == 0 {
		return i / 2
	}
	return n - 1 - i/2
}

// bands returns the kinds that have to be in one domain of an attribute with each other, or with
// themselves.
func (g *gathering) bands(column *layout.Column) (out []band) {
	of := map[*kind]int{}
	for i := range g.kinds {
		k := &g.kinds[i]
		for _, t := range k.near() {
			if t.column != column {
				continue
			}
			var with []*kind
			for j := range g.kinds {
				if g.picks(&t, &g.kinds[j]) {
					with = append(with, &g.kinds[j])
				}
			}
			if len(with) > 0 {
				out = join(out, of, append(with, k))
			}
		}
	}
	return slices.DeleteFunc(out, func(b band) bool { return len(b.kinds) == 0 })
}

// join has some kinds be in one band, with all that one of them is with already.
func join(bands []band, of map[*kind]int, kinds []*kind) []band {
	at := len(bands)
	bands = append(bands, band{})
	for _, k := range kinds {
		was, known := of[k]
		if known && was == at {
			continue
		}
		moved := []*kind{k}
		if known {
			moved, bands[was].kinds = bands[was].kinds, nil
		}
		for _, m := range moved {
			of[m] = at
			bands[at].kinds = append(bands[at].kinds, m)
		}
	}
	return bands
}

// roomy returns the values of an attribute whose machines have room for all asks of each of some
// kinds, those with the least room first.
func (g *gathering) roomy(kinds []*kind, column *layout.Column) []string {
	type domain struct {
		value string
		share float64 // of the room that the asks take
	}
	shares, short := make([]float64, len(column.Values)), make([]bool, len(column.Values))
	for _, k := range kinds {
		room := make([]int, len(column.Values))
		for slot, n := range k.fits {
			room[column.At[slot]] += int(n)
		}
		for v, n := range room {
			if short[v] = short[v] || n < len(k.asks); n > 0 {
				shares[v] += float64(len(k.asks)) / float64(n)
			}
		}
	}
	var list []domain
	for v := 1; v < len(column.Values); v++ {
		if !short[v] {
			list = append(list, domain{column.Values[v], shares[v]})
		}
	}
	slices.SortFunc(list, func(a, b domain) int { return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.value, b.value)) })
	out := make([]string, 0, len(list))
	for _, d := range list {
		out = append(out, d.value)
	}
	return out
}
