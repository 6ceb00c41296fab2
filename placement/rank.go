package placement

// rank is the place of a block in the order in which blocks are chosen: first
// the domains in which the fewest tasks of the job stay, then the score of the
// block's best machine, then the order of the layout.
type rank struct {
	inDomain int32 // tasks of the job that are not stopping
	score    float32
	block    int32
}

func (r rank) before(o rank) bool {
	switch {
	case r.inDomain != o.inDomain:
		return r.inDomain < o.inDomain
	case r.score != o.score:
		return r.score > o.score
	}
	return r.block < o.block
}

// rankOf returns the rank of a block as it is now.
func (c *scores) rankOf(block int32) rank {
	b := &c.blocks[block]
	r := rank{score: infeasible, block: block}
	if b.Best >= 0 {
		r.score = c.score[b.Best]
	}
	if c.tally != nil {
		r.inDomain = c.tally.stay[b.Domain]
	}
	return r
}

// rankAs returns the rank that a candidate's block had if it were the best.
func (c *scores) rankAs(i int32) rank {
	r := rank{score: c.score[i], block: int32(c.blockOf(i))}
	if c.tally != nil {
		r.inDomain = c.tally.stay[c.blocks[r.block].Domain]
	}
	return r
}

// rankAll ranks all blocks afresh, as of so many removals.
func (c *scores) rankAll(removals int) {
	c.removals = removals
	c.order, c.queued = c.order[:0], c.queued[:0]
	for k := range c.blocks {
		c.queued = append(c.queued, -1)
		if c.blocks[k].Best >= 0 {
			c.queued[k] = int32(len(c.order))
			c.order = append(c.order, c.rankOf(int32(k)))
		}
	}
	for i := len(c.order)/2 - 1; i >= 0; i-- {
		c.down(i)
	}
}

// rank ranks one block again.
func (c *scores) rank(block int32) {
	at := int(c.queued[block])
	switch has := c.blocks[block].Best >= 0; {
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

// best returns the best candidate and the second best, or -1. A domain that
// got tasks since a block was ranked makes the block worse, never better
// (removals are ranked afresh), so only what is found on top is made sure of. Blocks are
// passed over whose domain is not open; nil for none.
func (c *scores) best(open []bool) (first, second int32) {
	may := func(block int32) bool { return open == nil || open[c.blocks[block].Domain] }
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
	next := rank{score: infeasible}
	b := &c.blocks[top.block]
	first, second = b.Best, -1
	for i := 1; i < min(len(c.order), 3); i++ {
		if may(c.order[i].block) && (second < 0 || c.order[i].before(next)) {
			next, second = c.order[i], c.blocks[c.order[i].block].Best
		}
	}
	for i := b.From; i < b.To; i++ {
		r := rank{top.inDomain, c.score[i], top.block}
		if i != first && r.score > infeasible && (second < 0 || r.before(next)) {
			next, second = r, i
		}
	}
	return first, second
}

func (c *scores) up(i int) {
	for i > 0 && c.order[i].before(c.order[(i-1)/2]) {
		c.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (c *scores) down(i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(c.order); k++ {
			if c.order[k].before(c.order[least]) {
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

func (c *scores) swap(i, k int) {
	c.order[i], c.order[k] = c.order[k], c.order[i]
	c.queued[c.order[i].block], c.queued[c.order[k].block] = int32(i), int32(k)
}
