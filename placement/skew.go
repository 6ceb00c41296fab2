package placement

import (
	"fmt"
	"math"
	"slices"

	"github.com/musterhq/muster/schema"
)

// SkewLimit bounds by how many tasks of a job one domain may be ahead of the one that has
// the fewest: a task is placed only where its domain, with it, has at most Max more. Tasks
// that are stopping do not count, and claims do.
//
// A domain is one that may get tasks of the job: one of its machines is up, is not draining
// or cordoned, has no condition that keeps the task away, has the devices of the task, and
// meets its constraints and tolerations. A domain of which none is so any more is not compared with.
// A machine without the attribute is in no domain, and refused.
type SkewLimit struct {
	Attribute string
	Max       int // at least 1
	// MinDomains is how many domains there have to be: as long as there are fewer, one
	// that is missing is taken to have no task. 0 and 1 are no bound.
	MinDomains int
}

// String returns the limit in words: "maxSkew 1 over rack".
func (l *SkewLimit) String() string { return fmt.Sprintf("maxSkew %d over %s", l.Max, l.Attribute) }

// skew is a SkewLimit made ready to be asked of many machines, and how a job is spread as
// of certain counts in the snapshot.
type skew struct {
	SkewLimit
	column   *column
	shapes   int // Snapshot.shapes, for which eligible holds
	changes  int // of the job, for which open holds
	version  int // counts how often open has become another
	eligible []bool
	open     []bool // by value: it may get one task more
	scored   []bool // open, as of when the scores were brought up to date
	fewest   int32  // tasks of the job in a domain
	at       int32  // value of the domain that has the fewest, 0 if one is missing
	domains  int
}

func (s *Snapshot) skewsOf(limits []SkewLimit) (out []*skew) {
	for _, l := range limits {
		out = append(out, &skew{SkewLimit: l, column: s.column(l.Attribute), shapes: -1, changes: -1})
	}
	return out
}

// skewLimits returns the limits that skews were made of.
func (c *wants) skewLimits() (out []SkewLimit) {
	for _, k := range c.skews {
		out = append(out, k.SkewLimit)
	}
	return out
}

// countsOf returns how many tasks of a class's job stay, by value of an attribute; nil if it
// is no matter, since there are no others.
func (s *Snapshot) countsOf(c *class, x *column) []int32 {
	if c.job < 0 {
		return nil
	}
	return s.tallyOf(c.job, x).stay
}

// weigh brings up to date which domains may get one task more.
func (s *Snapshot) weigh(c *class, k *skew) {
	changes := 0
	if c.job >= 0 {
		changes = s.jobs.at(c.job).changes
	}
	if k.shapes == s.shapes && k.changes == changes {
		return
	}
	if k.shapes != s.shapes {
		s.findDomains(c, k)
	}
	k.shapes, k.changes = s.shapes, changes
	stay := s.countsOf(c, k.column)
	k.fewest, k.at = math.MaxInt32, 0
	for v, ok := range k.eligible {
		if n := tasksIn(stay, int32(v)); ok && (n < k.fewest || n == k.fewest && k.column.values[v] < k.column.values[k.at]) {
			k.fewest, k.at = n, int32(v)
		}
	}
	if k.domains < k.MinDomains || k.domains == 0 {
		k.fewest, k.at = 0, 0
	}
	was := len(k.open)
	k.open = slices.Grow(k.open, max(0, len(k.column.values)-was))[:len(k.column.values)]
	clear(k.open[min(was, len(k.open)):])
	turned := was != len(k.open)
	for v := 1; v < len(k.open); v++ {
		open := int(tasksIn(stay, int32(v)))+1-int(k.fewest) <= k.Max
		turned = turned || open != k.open[v]
		k.open[v] = open
	}
	if turned {
		k.version++
	}
}

func tasksIn(counts []int32, value int32) int32 {
	if int(value) >= len(counts) {
		return 0
	}
	return counts[value]
}

// findDomains finds the domains that may get tasks of a class.
func (s *Snapshot) findDomains(c *class, k *skew) {
	k.eligible = make([]bool, len(k.column.values))
	k.domains = 0
	for slot := range s.nodes.len() {
		v := k.column.at[slot]
		if v == 0 || k.eligible[v] || s.rows.at(slot).state != stateUp || conditionOf(s.nodes.at(slot).Conditions, c.priority) != fine || !s.suits(c, slot) {
			continue
		}
		k.eligible[v] = true
		k.domains++
	}
}

// skewed returns the limit that keeps a class from a machine; nil for none.
func (s *Snapshot) skewed(c *class, slot int32) *skew {
	for _, k := range c.skews {
		v := k.column.at[slot]
		if c.lenient && k == c.ranked && v != 0 {
			continue
		}
		if s.weigh(c, k); !k.open[v] {
			return k
		}
	}
	return nil
}

// rankSkew finds the skew over the attribute by which candidates are ranked.
func (s *Snapshot) rankSkew(c *class) {
	c.ranked, c.byDomain = nil, nil
	for _, k := range c.skews {
		if k.column == c.layout.column && c.tally != nil && c.ranked == nil {
			s.weigh(c, k)
			c.ranked, c.byDomain = k, make([]int32, len(k.column.values))
		}
	}
}

// isCandidate reports whether a machine has room for a class, if its domain is one that may
// get one task more as far as rank makes sure of that.
func (s *Snapshot) isCandidate(c *class, slot int32) bool {
	c.lenient = true
	ok := s.check(c, slot) == fine
	c.lenient = false
	return ok
}

// mayRank reports whether the domain of a block may get one task more.
func (s *Snapshot) mayRank(c *class, block int32) bool {
	if c.ranked == nil {
		return true
	}
	s.weigh(c, c.ranked)
	return c.ranked.open[c.blocks[block].domain]
}

// feasibleNow returns how many of the machines that were examined have room.
func (s *Snapshot) feasibleNow(c *class) int {
	if c.ranked == nil {
		return c.feasible
	}
	s.weigh(c, c.ranked)
	sum := 0
	for v, n := range c.byDomain {
		if c.ranked.open[v] {
			sum += int(n)
		}
	}
	return sum
}

// skewVersion changes when domains that could get tasks of a class cannot any more, or the
// other way round.
func (s *Snapshot) skewVersion(c *class) (sum int) {
	for _, k := range c.skews {
		s.weigh(c, k)
		sum += k.version
	}
	return sum
}

// followSkew takes over for the scores of a class which domains may get tasks now. It
// reports false when machines have to be examined afresh.
func (s *Snapshot) followSkew(c *class) bool {
	for _, k := range c.skews {
		if s.weigh(c, k); k == c.ranked || slices.Equal(k.open, k.scored) {
			continue
		}
		if len(k.open) != len(k.scored) {
			return false
		}
		for v, open := range k.open {
			if open && !k.scored[v] && !c.whole() { // its machines may be no candidates
				return false
			}
		}
		for i, slot := range c.slots {
			if v := k.column.at[slot]; k.open[v] != k.scored[v] {
				c.seen[i]-- // whatever it was, it is out of date
				s.rescore(c, int32(i))
			}
		}
		copy(k.scored, k.open)
	}
	return true
}

// scoredSkew notes that all scores of a class were made afresh.
func (s *Snapshot) scoredSkew(c *class) {
	for _, k := range c.skews {
		s.weigh(c, k)
		k.scored = append(k.scored[:0], k.open...)
	}
	if c.ranked != nil {
		for i, slot := range c.slots {
			if c.score[i] > infeasible {
				c.byDomain[c.ranked.column.at[slot]]++
			}
		}
	}
}

// leavesEven reports whether a task of a class may leave a machine for another, as far as
// skew is concerned: where it was does not fall further behind another domain than it may.
// The machine still holds as many of the class's tasks that go.
func (s *Snapshot) leavesEven(c *class, from, to, held int32) bool {
	for _, k := range c.skews {
		s.weigh(c, k)
		f, d := k.column.at[from], k.column.at[to]
		if f == 0 || f == d || !k.eligible[f] || k.domains < k.MinDomains {
			continue
		}
		stay := s.countsOf(c, k.column)
		left := tasksIn(stay, f) - held
		fewest, most := int32(math.MaxInt32), int32(0)
		for v, ok := range k.eligible {
			if v := int32(v); ok && v != f {
				n := tasksIn(stay, v)
				if v == d {
					n++
				}
				fewest, most = min(fewest, n), max(most, n)
			}
		}
		if left < fewest && int(most-left) > k.Max {
			return false
		}
	}
	return true
}

// skewReason says which limit keeps a class from a machine.
func (s *Snapshot) skewReason(k *skew, slot int32) Reason {
	switch {
	case k.column.at[slot] == 0:
		return Reason(fmt.Sprintf("lack the attribute %s, which spread.maxSkew is about", k.Attribute))
	case k.domains < k.MinDomains:
		return Reason(fmt.Sprintf("are at spread.maxSkew %d over %s: of minDomains %d only %d can get a task", k.Max, k.Attribute, k.MinDomains, k.domains))
	}
	return Reason(fmt.Sprintf("are at spread.maxSkew %d over %s: %s has %s of the job", k.Max, k.Attribute, k.column.values[k.at], schema.Count(int(k.fewest), "task")))
}
