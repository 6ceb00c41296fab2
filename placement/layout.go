package placement

import (
	"cmp"
	"slices"
)

// blockSize is the most machines in a block: looking through a block after one
// of its machines changed should cost about as much as looking through all
// blocks of a cell of some thousand machines.
const blockSize = 64

// layout is an order of all machines in which those of one domain stand
// together, cut into blocks. Classes that spread over the same attribute
// share it.
type layout struct {
	column *column
	slots  []int32
	at     []int32 // place in slots, by slot
	// ring is the order in which machines are examined when not all are:
	// random, but so that any stretch has about the same of each domain.
	ring   []int32
	blocks []block // over slots
}

// block is a stretch of candidates in one domain, and the best of them.
type block struct {
	from, to int32
	domain   int32
	best     int32 // candidate, or -1 if none has room
}

// layoutFor returns the layout for jobs that spread over an attribute.
func (s *Snapshot) layoutFor(attribute string) *layout {
	if l := s.layouts[attribute]; l != nil {
		return l
	}
	l := &layout{column: s.column(attribute), at: make([]int32, s.nodes.len())}
	for slot := range s.nodes.len() {
		if s.rows.at(slot).state != stateGone {
			l.slots = append(l.slots, slot)
		}
	}
	order := l.domainOrder()
	slices.SortFunc(l.slots, func(a, b int32) int {
		return cmp.Or(cmp.Compare(order[l.column.at[a]], order[l.column.at[b]]), s.compareSlots(a, b))
	})
	for i, slot := range l.slots {
		l.at[slot] = int32(i)
	}
	l.blocks = l.cut(l.slots, nil)
	l.setRing(s)
	s.layouts[attribute] = l
	return l
}

func (s *Snapshot) compareSlots(a, b int32) int {
	return cmp.Compare(s.nodes.at(a).Name, s.nodes.at(b).Name)
}

// domainOrder ranks the domains by name; machines in none come first.
func (l *layout) domainOrder() []int32 {
	ids := make([]int32, len(l.column.values))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortFunc(ids, func(a, b int32) int { return cmp.Compare(l.column.values[a], l.column.values[b]) })
	order := make([]int32, len(ids))
	for rank, id := range ids {
		order[id] = int32(rank)
	}
	return order
}

// cut divides candidates, which stand in the order of the layout, into blocks.
func (l *layout) cut(slots []int32, blocks []block) []block {
	blocks = blocks[:0]
	for i, slot := range slots {
		domain := l.column.at[slot]
		k := len(blocks) - 1
		if k < 0 || blocks[k].domain != domain || int32(i)-blocks[k].from >= blockSize {
			blocks = append(blocks, block{from: int32(i), domain: domain, best: -1})
			k++
		}
		blocks[k].to = int32(i) + 1
	}
	return blocks
}

// setRing deals out the machines domain by domain, like cards.
func (l *layout) setRing(s *Snapshot) {
	type card struct {
		slot, round int32
		order       uint64
	}
	cards := make([]card, len(l.slots))
	var round int32
	dealt := slices.Clone(l.slots)
	slices.SortStableFunc(dealt, func(a, b int32) int {
		return cmp.Or(cmp.Compare(l.column.at[a], l.column.at[b]), cmp.Compare(s.nodes.at(a).hash, s.nodes.at(b).hash))
	})
	for i, slot := range dealt {
		domain := l.column.at[slot]
		if i > 0 && domain > 0 && l.column.at[dealt[i-1]] == domain {
			round++
		} else {
			round = 0
		}
		// A salt, since within a domain the hash alone is the order of rounds.
		cards[i] = card{slot, round, mix(s.nodes.at(slot).hash + 1)}
	}
	slices.SortFunc(cards, func(a, b card) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.order, b.order))
	})
	l.ring = make([]int32, len(cards))
	for i, c := range cards {
		l.ring[i] = c.slot
	}
}
