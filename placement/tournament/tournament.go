package tournament

import (
	"math"
	"slices"

	"github.com/musterhq/muster/placement/layout"
)

// Standing finds the best of many candidates, cut into blocks: the best of each block, and
// among these the best of all.
type Standing struct {
	Score  []float32 // by candidate; infeasible when there is no room
	Blocks []layout.Block
	Tally  *Tally  // of the job, over the attribute it is spread over, or nil
	Outer  *Outer  // nil for none
	heaps  []heap  // one for each outer domain
	queued []int32 // place in its heap by block, or -1
}

// heap is the blocks of an outer domain that have room, best first.
type heap []Rank

// Infeasible is the score of a machine that has no room.
var Infeasible = float32(math.Inf(-1))

// Rank is the place of a block in the order in which blocks are chosen: first
// the domains whose outer ones have the least load, then those in which the fewest tasks of
// the job stay, then the score of the block's best machine, then the order of the layout.
type Rank struct {
	outer    int32 // see Outer.Load; 0 in a heap
	inDomain int32 // tasks of the job that are not stopping
	score    float32
	block    int32
}

// Before reports whether a block of this rank is chosen before one of another.
func (r Rank) Before(o Rank) bool {
	switch {
	case r.outer != o.outer:
		return r.outer < o.outer
	case r.inDomain != o.inDomain:
		return r.inDomain < o.inDomain
	case r.score != o.score:
		return r.score > o.score
	}
	return r.block < o.block
}

// rankOf returns the rank of a block as it is now, among those of its outer domain.
func (c *Standing) rankOf(block int32) Rank {
	b := &c.Blocks[block]
	r := Rank{score: Infeasible, block: block}
	if b.Best >= 0 {
		r.score = c.Score[b.Best]
	}
	if c.Tally != nil {
		r.inDomain = c.Tally.Stay[b.Domain]
	}
	return r
}

// RankAs returns the rank that a candidate's block had if it were the best.
func (c *Standing) RankAs(i int32) Rank {
	r := c.rankOf(int32(c.BlockOf(i)))
	if r.score = c.Score[i]; c.Outer != nil {
		r.outer = c.Outer.at(c.Blocks[r.block].Domain)
	}
	return r
}

// heapOf returns the heap that a block stands in: that of its outer domain.
func (c *Standing) heapOf(block int32) *heap {
	if c.Outer == nil {
		return &c.heaps[0]
	}
	return &c.heaps[c.Outer.Of[c.Blocks[block].Domain]]
}

// RankAll ranks all blocks afresh.
func (c *Standing) RankAll() {
	heaps := 1
	if c.Outer != nil {
		heaps = len(c.Outer.Tally.Stay)
	}
	c.heaps = slices.Grow(c.heaps[:0], heaps)[:heaps]
	for i := range c.heaps {
		c.heaps[i] = c.heaps[i][:0]
	}
	c.queued = c.queued[:0]
	for k := range c.Blocks {
		c.queued = append(c.queued, -1)
		if c.Blocks[k].Best >= 0 {
			h := c.heapOf(int32(k))
			c.queued[k] = int32(len(*h))
			*h = append(*h, c.rankOf(int32(k)))
		}
	}
	for _, h := range c.heaps {
		for i := len(h)/2 - 1; i >= 0; i-- {
			c.down(h, i)
		}
	}
}

// Rank ranks one block again.
func (c *Standing) Rank(block int32) {
	h := c.heapOf(block)
	at := int(c.queued[block])
	switch has := c.Blocks[block].Best >= 0; {
	case at >= 0 && has:
		(*h)[at] = c.rankOf(block)
		c.up(*h, at)
		c.down(*h, int(c.queued[block]))
	case has:
		c.queued[block] = int32(len(*h))
		*h = append(*h, c.rankOf(block))
		c.up(*h, len(*h)-1)
	case at >= 0:
		last := len(*h) - 1
		c.swap(*h, at, last)
		*h, c.queued[block] = (*h)[:last], -1
		if at < last {
			moved := (*h)[at].block
			c.up(*h, at)
			c.down(*h, int(c.queued[moved]))
		}
	}
}

// freshen makes sure of what is found on top of a heap. A domain that got tasks since a block
// was ranked makes the block worse, never better (removals are ranked afresh).
func (c *Standing) freshen(h heap) {
	for i := 0; i < min(len(h), 3); i++ {
		if now := c.rankOf(h[i].block); now != h[i] {
			h[i] = now
			c.down(h, i)
			i = -1
		}
	}
}

// leading returns the heap of the outer domain that has the least load, fresh; of several that
// with the best block. It is nil if no block has room.
func (c *Standing) leading() (best heap) {
	if c.Outer == nil {
		c.freshen(c.heaps[0])
		return c.heaps[0]
	}
	var least int32
	for outer, h := range c.heaps {
		if len(h) == 0 {
			continue
		}
		load := c.Outer.Load(int32(outer), c.Outer.Tally.Stay[outer])
		if best != nil && load > least {
			continue
		}
		if c.freshen(h); best == nil || load < least || h[0].Before(best[0]) {
			best, least = h, load
		}
	}
	return best
}

// Best returns the best candidate and the second best, or -1. Blocks are
// passed over whose domain is not open; nil for none.
func (c *Standing) Best(open []bool) (first, second int32) {
	may := func(block int32) bool { return open == nil || open[c.Blocks[block].Domain] }
	order := c.leading()
	if len(order) == 0 {
		return -1, -1
	}
	top := order[0]
	if !may(top.block) {
		return -1, -1 // where there are fewer of the job there is no room, where there are more it must not be
	}
	next := Rank{score: Infeasible}
	b := &c.Blocks[top.block]
	first, second = b.Best, -1
	for i := 1; i < min(len(order), 3); i++ {
		if may(order[i].block) && (second < 0 || order[i].Before(next)) {
			next, second = order[i], c.Blocks[order[i].block].Best
		}
	}
	for i := b.From; i < b.To; i++ {
		r := Rank{inDomain: top.inDomain, score: c.Score[i], block: top.block}
		if i != first && r.score > Infeasible && (second < 0 || r.Before(next)) {
			next, second = r, i
		}
	}
	return first, second
}

func (c *Standing) up(h heap, i int) {
	for i > 0 && h[i].Before(h[(i-1)/2]) {
		c.swap(h, i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (c *Standing) down(h heap, i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(h); k++ {
			if h[k].Before(h[least]) {
				least = k
			}
		}
		if least == i {
			return
		}
		c.swap(h, i, least)
		i = least
	}
}

func (c *Standing) swap(h heap, i, k int) {
	h[i], h[k] = h[k], h[i]
	c.queued[h[i].block], c.queued[h[k].block] = int32(i), int32(k)
}

// BlockOf returns the block of a candidate.
func (c *Standing) BlockOf(i int32) int {
	lo, hi := 0, len(c.Blocks)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; c.Blocks[mid].From <= i {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// FindBest finds the best candidate of a block; of equal ones the first.
func (c *Standing) FindBest(b *layout.Block) {
	b.Best = -1
	best := Infeasible
	for i, v := range c.Score[b.From:b.To] {
		if v > best {
			best, b.Best = v, b.From+int32(i)
		}
	}
}

// Tally counts the tasks of a job by value of an attribute.
type Tally struct {
	N    []int32
	Stay []int32 // of them, that are not stopping
}

// Add counts tasks in the domain of a value, and those of them that stay.
func (t *Tally) Add(value, n, stay int32) {
	t.Grow(int(value) + 1)
	t.N[value] += n
	t.Stay[value] += stay
}

// Grow has it count for so many values at least.
func (t *Tally) Grow(to int) {
	if k := to - len(t.N); k > 0 {
		t.N, t.Stay = append(t.N, make([]int32, k)...), append(t.Stay, make([]int32, k)...)
	}
}
