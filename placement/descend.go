package placement

import (
	"cmp"
	"slices"
)

// descent decides asks one after the other on a fork, and goes back to try another machine for the
// one before where there is none for the next.
type descent struct {
	*pass
	asks  []Ask
	turns []turn
	left  *int
	// plain says that it makes no difference to one ask where others are, but for the room.
	plain bool
	out   []Decision
	// tried are the machines that an ask of a kind has been tried on before, with all that was
	// decided then: another one of the kind need not be.
	tried map[*kind]map[int32]bool
}

// turn is an ask whose turn comes.
type turn struct {
	ask  *Ask
	c    *class
	kind *kind
}

// alikeRoom is what makes machines the same to plain asks.
type alikeRoom struct {
	byLimit, byReserv vector
	kinds             uint64 // which have room, as bits
}

// backAndForth tries all that is possible without eviction, as far as that is no more than may be
// examined. Where tasks are no matter to each other but for the room, what comes to the same is
// tried once.
func (g *gathering) backAndForth(order []int, left *int) []Decision {
	s := g.snapshot
	if slices.ContainsFunc(g.asks, func(a Ask) bool { return a.On != "" }) || len(g.kinds) > 64 {
		return nil
	}
	fork := s.Fork()
	d := descent{pass: newPass(fork, g.seed), asks: g.asks, left: left, plain: true, tried: map[*kind]map[int32]bool{}}
	for i := range g.kinds {
		k := &g.kinds[i]
		c := fork.single(&g.asks[k.asks[0]])
		d.plain = d.plain && c.kin == nil && c.bounds == nil && c.skews == nil && c.needs == nil && c.ports == 0 && c.numbers == nil
		d.tried[k] = map[int32]bool{}
		for _, at := range k.asks {
			fork.release(c.job, g.asks[at].Name.Index)
			d.turns = append(d.turns, turn{&g.asks[at], c, k})
		}
	}
	at := make(map[*Ask]int, len(order))
	for i, n := range order {
		at[&g.asks[n]] = i
	}
	slices.SortFunc(d.turns, func(a, b turn) int { return cmp.Compare(at[a.ask], at[b.ask]) })
	d.gather(g)
	whole := d.descend(0)
	fork.Release()
	s.merge()
	if !whole {
		return nil
	}
	return d.out
}

// gather numbers the kinds, for alikeRoom.
func (d *descent) gather(g *gathering) {
	for i := range g.kinds {
		g.kinds[i].bit = 1 << i
	}
}

// descend decides the asks from one on, and reports whether all have got places.
func (d *descent) descend(from int) bool {
	if from == len(d.turns) {
		return true
	}
	s, t := d.snapshot, &d.turns[from]
	same := map[alikeRoom]bool{}
	var here []int32
	defer func() {
		for _, slot := range here {
			delete(d.tried[t.kind], slot)
		}
	}()
	for _, slot := range d.candidates(t) {
		if d.plain {
			r := d.roomOf(slot)
			if same[r] {
				continue
			}
			same[r] = true
		}
		d.out = append(d.out, Decision{Name: t.ask.Name, Why: Why{Machines: s.slots.Len(), Examined: s.slots.Len(), Feasible: 1}})
		d.commit(t.c, t.ask, t.c.job, slot, &d.out[from])
		if d.descend(from + 1) {
			return true
		}
		s.drop(s.find(taskKey{t.c.job, int32(t.ask.Name.Index), slot, t.ask.Generation}))
		s.touch(slot)
		d.out = d.out[:from]
		if *d.left <= 0 {
			return false
		}
		if d.plain {
			d.tried[t.kind][slot] = true
			here = append(here, slot)
		}
	}
	return false
}

// candidates returns the machines that have room for an ask, the best first.
func (d *descent) candidates(t *turn) (slots []int32) {
	s := d.snapshot
	if *d.left -= int(s.nodes.Len()); *d.left < 0 {
		return nil
	}
	b := map[int32]float32{}
	for slot := range s.nodes.Len() {
		if t.kind.fits[slot] == 0 || d.tried[t.kind][slot] || s.rows.At(slot).heldAt >= 0 || s.check(t.c, slot) != fine {
			continue
		}
		slots = append(slots, slot)
		b[slot] = s.worth(t.c, slot)
	}
	slices.SortFunc(slots, func(x, y int32) int { return cmp.Or(cmp.Compare(b[y], b[x]), s.compareSlots(x, y)) })
	return slots
}

// roomOf says what a machine is to plain asks.
func (d *descent) roomOf(slot int32) alikeRoom {
	r := d.snapshot.rows.At(slot)
	out := alikeRoom{byLimit: r.byLimit, byReserv: r.byReserv}
	for k := range d.tried {
		if k.fits[slot] > 0 {
			out.kinds |= k.bit
		}
	}
	return out
}
