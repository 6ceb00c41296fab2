package tournament

import (
	"math"

	"github.com/musterhq/muster/placement/layout"
)

// Standing finds the best of many candidates, cut into blocks: the best of each block, and
// among these the best of all.
type Standing struct {
	Score  []float32 // by candidate; infeasible when there is no room
	Blocks []layout.Block
	Tally  *Tally  // of the job, over the attribute it is spread over, or nil
	order  []Rank  // a heap of the blocks that have room, best first
	queued []int32 // place in order by block, or -1
}

// Infeasible is the score of a machine that has no room.
var Infeasible = float32(math.Inf(-1))

// Rank is the place of a block in the order in which blocks are chosen: first
// the domains in which the fewest tasks of the job stay, then the score of the
// block's best machine, then the order of the layout.
type Rank struct {
	inDomain int32 // tasks of the job that are not stopping
	score    float32
	block    int32
}

// Before reports whether a block of this rank is chosen before one of another.
func (r Rank) Before(o Rank) bool {
	switch {
	case r.inDomain != o.inDomain:
		return r.inDomain < o.inDomain
	case r.score != o.score:
		return r.score > o.score
	}
	return r.block < o.block
}

// rankOf returns the rank of a block as it is now.
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
	r := Rank{score: c.Score[i], block: int32(c.BlockOf(i))}
	if c.Tally != nil {
		r.inDomain = c.Tally.Stay[c.Blocks[r.block].Domain]
	}
	return r
}

// RankAll ranks all blocks afresh.
func (c *Standing) RankAll() {
	c.order, c.queued = c.order[:0], c.queued[:0]
	for k := range c.Blocks {
		c.queued = append(c.queued, -1)
		if c.Blocks[k].Best >= 0 {
			c.queued[k] = int32(len(c.order))
			c.order = append(c.order, c.rankOf(int32(k)))
		}
	}
	for i := len(c.order)/2 - 1; i >= 0; i-- {
		c.down(i)
	}
}

// Rank ranks one block again.
func (c *Standing) Rank(block int32) {
	at := int(c.queued[block])
	switch has := c.Blocks[block].Best >= 0; {
	case at >= 0 && has:
		c.order[at] = c.rankOf(block)
		c.up(at)
		c.down(int(c.queued[block]))
	case has:
		c.queued[block] = int32(len(c.order))
		c.order = append(c.order, c.rankOf(block))
		c.up(len(c.order) - 1)
	case at >= 0:
		last := len(c.order) - 1
		c.swap(at, last)
		c.order, c.queued[block] = c.order[:last], -1
		if at < last {
			moved := c.order[at].block
			c.up(at)
			c.down(int(c.queued[moved]))
		}
	}
}

// Best returns the best candidate and the second best, or -1. A domain that
// got tasks since a block was ranked makes the block worse, never better
// (removals are ranked afresh), so only what is found on top is made sure of. Blocks are
// passed over whose domain is not open; nil for none.
func (c *Standing) Best(open []bool) (first, second int32) {
	may := func(block int32) bool { return open == nil || open[c.Blocks[block].Domain] }
	for i := 0; i < min(len(c.order), 3); i++ {
		if now := c.rankOf(c.order[i].block); now != c.order[i] {
			c.order[i] = now
			c.down(i)
			i = -1
		}
	}
	if len(c.order) == 0 {
		return -1, -1
	}
	top := c.order[0]
	if !may(top.block) {
		return -1, -1 // where there are fewer of the job there is no room, where there are more it must not be
	}
	next := Rank{score: Infeasible}
	b := &c.Blocks[top.block]
	first, second = b.Best, -1
	for i := 1; i < min(len(c.order), 3); i++ {
		if may(c.order[i].block) && (second < 0 || c.order[i].Before(next)) {
			next, second = c.order[i], c.Blocks[c.order[i].block].Best
		}
	}
	for i := b.From; i < b.To; i++ {
		r := Rank{top.inDomain, c.Score[i], top.block}
		if i != first && r.score > Infeasible && (second < 0 || r.Before(next)) {
			next, second = r, i
		}
	}
	return first, second
}

func (c *Standing) up(i int) {
	for i > 0 && c.order[i].Before(c.order[(i-1)/2]) {
		c.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (c *Standing) down(i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(c.order); k++ {
			if c.order[k].Before(c.order[least]) {
				least = k
			}
		}
		if least == i {
			return
		}
		c.swap(i, least)
		i = least
	}
}

func (c *Standing) swap(i, k int) {
	c.order[i], c.order[k] = c.order[k], c.order[i]
	c.queued[c.order[i].block], c.queued[c.order[k].block] = int32(i), int32(k)
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
