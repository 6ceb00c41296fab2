package layout

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// blockSize is the most machines in a block: looking through a block after one
// of its machines changed should cost about as much as looking through all
// blocks of a cell of some thousand machines.
const blockSize = 64

// Layout is an order of all machines in which those of one domain stand
// together, cut into blocks. Classes that spread over the same attribute
// share it.
type Layout struct {
	Column *Column
	Slots  []int32
	At     []int32 // place in slots, by slot
	// Ring is the order in which machines are examined when not all are:
	// random, but so that any stretch has about the same of each domain.
	Ring   []int32
	rounds []int32 // of what stands in the ring, see setRing
	turn   []int32 // place in the ring, by slot
	Blocks []Block // over slots
}

// Block is a stretch of candidates in one domain, and the best of them.
type Block struct {
	From, To int32
	Domain   int32
	Best     int32 // candidate, or -1 if none has room
}

// seats says the name of the machine in a slot, and the hash of that.
type seats func(slot int32) (name string, hash uint64)

// New returns the layout of the machines in slots, of so many that there are, for an
// attribute.
func New(column *Column, slots []int32, total int32, in seats) *Layout {
	l := &Layout{Column: column, Slots: slots, At: make([]int32, total)}
	order := l.domainOrder()
	all := make([]seat, 0, len(slots))
	for _, slot := range slots {
		name, hash := in(slot)
		all = append(all, seat{slot: slot, name: name, hash: hash})
	}
	all = sortGroups(all, len(order), func(x *seat) int32 { return order[column.At[x.slot]] }, func(a, b seat) int { return cmp.Compare(a.name, b.name) })
	for i := range all {
		l.Slots[i], l.At[all[i].slot] = all[i].slot, int32(i)
	}
	l.Blocks = l.Cut(l.Slots, nil)
	l.setRing(all)
	return l
}

// seat is a slot and what seats says of it.
type seat struct {
	slot int32
	name string
	hash uint64
}

// sortGroups returns a list in the order of its groups, which are few numbers from 0 on, and
// those of one group in an order of theirs. To sort many small groups is faster than to sort
// all, and most come sorted.
func sortGroups[T any](list []T, groups int, of func(*T) int32, compare func(a, b T) int) []T {
	ends := make([]int, groups)
	for i := range list {
		ends[of(&list[i])]++
	}
	for g, sum := 0, 0; g < groups; g++ {
		ends[g], sum = sum, sum+ends[g]
	}
	out := make([]T, len(list))
	for i := range list {
		g := of(&list[i])
		out[ends[g]] = list[i]
		ends[g]++
	}
	from := 0
	for _, to := range ends {
		slices.SortFunc(out[from:to], compare)
		from = to
	}
	return out
}

// compare orders slots by the names of their machines.
func (in seats) compare(a, b int32) int {
	x, _ := in(a)
	y, _ := in(b)
	return cmp.Compare(x, y)
}

func (in seats) hash(slot int32) uint64 {
	_, h := in(slot)
	return h
}

// domainOrder ranks the domains by name; machines in none come first.
func (l *Layout) domainOrder() []int32 {
	ids := make([]int32, len(l.Column.Values))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortFunc(ids, func(a, b int32) int { return cmp.Compare(l.Column.Values[a], l.Column.Values[b]) })
	order := make([]int32, len(ids))
	for rank, id := range ids {
		order[id] = int32(rank)
	}
	return order
}

// Cut divides candidates, which stand in the order of the layout, into blocks.
func (l *Layout) Cut(slots []int32, blocks []Block) []Block {
	blocks = blocks[:0]
	for i, slot := range slots {
		domain := l.Column.At[slot]
		k := len(blocks) - 1
		if k < 0 || blocks[k].Domain != domain || int32(i)-blocks[k].From >= blockSize {
			blocks = append(blocks, Block{From: int32(i), Domain: domain, Best: -1})
			k++
		}
		blocks[k].To = int32(i) + 1
	}
	return blocks
}

// card is a machine as it is dealt into a ring: those of one domain in rounds, by the hash of
// their names, and those of one round by another hash.
type card struct {
	slot, round int32
	order       uint64
}

func compareCards(a, b card) int {
	if a.round != b.round {
		return cmp.Compare(a.round, b.round)
	}
	return cmp.Compare(a.order, b.order)
}

// cardOf returns the card of a machine by the hash of its name. It has a salt, since within a
// domain the hash alone is the order of rounds.
func cardOf(slot, round int32, hash uint64) card { return card{slot, round, Mix(hash + 1)} }

func (in seats) card(slot, round int32) card { return cardOf(slot, round, in.hash(slot)) }

// setRing deals out the machines domain by domain, like cards.
func (l *Layout) setRing(all []seat) {
	dealt := sortGroups(all, len(l.Column.Values), func(x *seat) int32 { return l.Column.At[x.slot] }, func(a, b seat) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return cmp.Compare(l.At[a.slot], l.At[b.slot])
	})
	cards := make([]card, len(dealt))
	var round, rounds int32
	for i := range dealt {
		domain := l.Column.At[dealt[i].slot]
		if i > 0 && domain > 0 && l.Column.At[dealt[i-1].slot] == domain {
			round++
		} else {
			round = 0
		}
		cards[i] = cardOf(dealt[i].slot, round, dealt[i].hash)
		rounds = max(rounds, round+1)
	}
	cards = sortGroups(cards, int(rounds), func(x *card) int32 { return x.round }, compareCards)
	l.Ring, l.rounds = make([]int32, len(cards)), make([]int32, len(cards))
	for i, c := range cards {
		l.Ring[i], l.rounds[i] = c.slot, c.round
	}
	l.setTurns()
}

func (l *Layout) setTurns() {
	l.turn = make([]int32, len(l.At))
	for i, slot := range l.Ring {
		l.turn[slot] = int32(i)
	}
}

// With returns the layout with one machine more, as newLayout would make it. It copies what
// stays, and sorts the machines of one domain only.
func (l *Layout) With(slot int32, column *Column, total int32, in seats) *Layout {
	domain := column.At[slot]
	place, _ := slices.BinarySearchFunc(l.Slots, slot, func(a, b int32) int {
		return cmp.Or(cmp.Compare(column.Values[column.At[a]], column.Values[domain]), in.compare(a, b))
	})
	out := &Layout{Column: column, Slots: slices.Concat(l.Slots[:place], []int32{slot}, l.Slots[place:])}
	out.At = append(make([]int32, 0, total), l.At...)[:total]
	for i := place; i < len(out.Slots); i++ {
		out.At[out.Slots[i]] = int32(i)
	}
	from, to := place, place+1 // what stands together of its domain
	for from > 0 && column.At[out.Slots[from-1]] == domain {
		from--
	}
	for to < len(out.Slots) && column.At[out.Slots[to]] == domain {
		to++
	}
	out.cutAgain(l, int32(from), int32(to))
	out.dealAgain(in, l, slot, out.Slots[from:to])
	return out
}

// cutAgain makes the blocks of a layout that has one machine more than another, in the
// stretch of a domain.
func (l *Layout) cutAgain(was *Layout, from, to int32) {
	l.Blocks = make([]Block, 0, len(was.Blocks)+1)
	for _, b := range was.Blocks {
		if b.From < from {
			l.Blocks = append(l.Blocks, b)
		}
	}
	for at := from; at < to; at += blockSize {
		l.Blocks = append(l.Blocks, Block{From: at, To: min(at+blockSize, to), Domain: l.Column.At[l.Slots[at]], Best: -1})
	}
	for _, b := range was.Blocks {
		if b.From >= to-1 {
			b.From, b.To = b.From+1, b.To+1
			l.Blocks = append(l.Blocks, b)
		}
	}
}

// dealAgain makes the ring of a layout that has one machine more than another, among those of
// a domain: of these, the ones that come after it are dealt a round later.
func (l *Layout) dealAgain(in seats, was *Layout, slot int32, domain []int32) {
	var leave []int // places in the ring that was
	var come []card
	round := int32(0)
	if l.Column.At[slot] > 0 {
		dealt := slices.Clone(domain)
		slices.SortStableFunc(dealt, func(a, b int32) int { return cmp.Compare(in.hash(a), in.hash(b)) })
		round = int32(slices.Index(dealt, slot))
		for i, moved := range dealt[round+1:] {
			leave = append(leave, was.placeOf(in, in.card(moved, round+int32(i))))
			come = append(come, in.card(moved, round+int32(i)+1))
		}
	}
	come = append(come, in.card(slot, round))
	slices.SortFunc(come, compareCards)
	slices.Sort(leave)
	l.Ring, l.rounds = make([]int32, 0, len(was.Ring)+1), make([]int32, 0, len(was.Ring)+1)
	at := 0
	upTo := func(place int) {
		l.Ring, l.rounds = append(l.Ring, was.Ring[at:place]...), append(l.rounds, was.rounds[at:place]...)
		at = place
	}
	for _, c := range come {
		place := was.placeOf(in, c)
		for len(leave) > 0 && leave[0] < place {
			upTo(leave[0])
			at, leave = at+1, leave[1:]
		}
		upTo(place)
		l.Ring, l.rounds = append(l.Ring, c.slot), append(l.rounds, c.round)
	}
	for _, gone := range leave {
		upTo(gone)
		at++
	}
	upTo(len(was.Ring))
	l.setTurns()
}

// placeOf returns where a card stands in a ring, or would.
func (l *Layout) placeOf(in seats, c card) int {
	return sort.Search(len(l.Ring), func(i int) bool { return compareCards(in.card(l.Ring[i], l.rounds[i]), c) >= 0 })
}

// stretch is how many machines of a ring are skipped together.
const stretch = 64

// Peaks bounds what is free on any machine of each stretch of a ring: so that a search need
// not look at machines that are full.
type Peaks struct {
	Layout *Layout
	top    [][3]int64
	// lacking says of the stretch that is being looked at that some of it lack room, and room
	// that some have it; begun is where it begins, or -1 if that was not looked at.
	lacking, room bool
	begun         int
}

// NewPeaks returns bounds that nothing is known of.
func NewPeaks(l *Layout) *Peaks {
	p := &Peaks{Layout: l, top: make([][3]int64, (len(l.Ring)+stretch-1)/stretch), begun: -1}
	for i := range p.top {
		p.top[i] = [3]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	}
	return p
}

// Raise takes into account what is free on a machine.
func (p *Peaks) Raise(slot int32, free [3]int64) {
	top := &p.top[p.Layout.turn[slot]/stretch]
	for d, v := range free {
		top[d] = max(top[d], v)
	}
}

// Full returns how many machines, from a place in the ring on, surely have no room; 0 if that
// is not known.
func (p *Peaks) Full(at int, limit [3]int64) int {
	if p == nil || at%stretch != 0 {
		return 0
	}
	for d, v := range p.top[at/stretch] {
		if limit[d] > v {
			return min(stretch, len(p.Layout.Ring)-at)
		}
	}
	return 0
}

// Saw notes what the machine in a place of the ring has said. It reports whether that was the
// last of a stretch of which none has room and some lack it: bounds may be lowered.
func (p *Peaks) Saw(at int, room, lacks bool) bool {
	if p == nil {
		return false
	}
	if at%stretch == 0 {
		p.begun, p.lacking, p.room = at, false, false
	}
	p.lacking, p.room = p.lacking || lacks, p.room || room
	return p.begun == at-at%stretch && (at%stretch == stretch-1 || at == len(p.Layout.Ring)-1) && p.lacking && !p.room
}

// Lower takes over what is free at most on the machines of the stretch that a place in the ring
// is in.
func (p *Peaks) Lower(at int, free func(slot int32) [3]int64) {
	i := at / stretch
	var top [3]int64
	for _, slot := range p.Layout.Ring[i*stretch : min((i+1)*stretch, len(p.Layout.Ring))] {
		for d, v := range free(slot) {
			top[d] = max(top[d], v)
		}
	}
	p.top[i] = top
}
