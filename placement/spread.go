package placement

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/placement/tournament"
)

// company is how many tasks of an ask's job stay, that is, are not stopping, where
// a machine is: the fewer, the better the job is spread.
type company struct {
	outer     int32 // the load of the outer domain, see nest
	inDomain  int32 // of the attribute that the job is spread over
	onMachine int32
}

// less reports whether a is better: by domains, and among those that are as good
// by machines.
func (a company) less(b company) bool {
	return cmp.Or(a.compareDomains(b), cmp.Compare(a.onMachine, b.onMachine)) < 0
}

func (a company) compareDomains(b company) int {
	return cmp.Or(cmp.Compare(a.outer, b.outer), cmp.Compare(a.inDomain, b.inDomain))
}

// companyOf returns what a task of a class would find on a machine. A job that
// does not mind how it is spread finds the same on all.
func (s *Snapshot) companyOf(c *class, slot int32) (out company) {
	if c.job < 0 || s.jobs.At(c.job).held == 0 && c.nest == nil || c.spread == NoSpread {
		return company{}
	}
	if c.nest != nil {
		out.outer = c.nest.load(slot, s.tallyOf(c.job, c.nest.outer).Stay[c.nest.outer.At[slot]])
	}
	l := s.layoutFor(c.spread)
	if len(l.Column.Values) > 1 && !c.nest.isFlat() {
		out.inDomain = s.tallyOf(c.job, l.Column).Stay[l.Column.At[slot]]
	}
	out.onMachine = s.staysOnMachine(c.job, slot)
	return out
}

// keeps returns the machine that an ask gets whatever its score: that it prefers,
// or where it ran last, unless the best there is would be better for its spread.
func (p *pass) keeps(c *class, a *Ask) (slot int32, ok bool) {
	s := p.snapshot
	if slot, ok = s.slots.Get(a.Prefer); ok && s.check(c, slot) == fine {
		return slot, true
	}
	if slot, ok = s.slots.Get(a.Last); !ok || s.check(c, slot) != fine {
		return 0, false
	}
	if c.lone || c.job < 0 {
		return slot, true
	}
	first, _ := s.top(c)
	return slot, first < 0 || !p.companyLater(c, c.slots[first]).less(p.companyLater(c, slot))
}

// companyLater returns what a task of a class would find on a machine when the
// others of its job that are stopping, or want a machine again, are back where they
// ran last: if all of them make way for each other nothing is gained.
func (p *pass) companyLater(c *class, slot int32) company {
	s := p.snapshot
	out := s.companyOf(c, slot)
	if c.spread == NoSpread {
		return out
	}
	if column := s.layoutFor(c.spread).Column; len(column.Values) > 1 && !c.nest.isFlat() {
		out.inDomain = p.tasksLater(c, column, slot)
	}
	if c.nest != nil {
		out.outer = c.nest.load(slot, p.tasksLater(c, c.nest.outer, slot))
	}
	out.onMachine = s.onMachine(c.job, slot)
	for _, last := range p.returning[c.job] {
		if last == slot {
			out.onMachine++
		}
	}
	return out
}

// tasksLater returns how many tasks of a class's job there are then where a machine is, by an
// attribute.
func (p *pass) tasksLater(c *class, column *layout.Column, slot int32) int32 {
	domain := column.At[slot]
	n := p.snapshot.tallyOf(c.job, column).N[domain]
	for _, last := range p.returning[c.job] {
		if column.At[last] == domain {
			n++
		}
	}
	return n
}

// mayBeWanted reports whether the best candidate is not where tasks are wanted, though some
// are elsewhere, and not all machines there have been asked.
func (s *Snapshot) mayBeWanted(c *class, slot int32) bool {
	return c.Outer != nil && !c.whole() && c.sought != s.passes && c.nest.behind(c.Outer, slot)
}

// Uneven says where a task would be better for the spread of its job than where it
// is.
type Uneven struct {
	// Attribute is what the job is spread over, or MachineAttribute, when the
	// domains are as good, and only the machines differ.
	Attribute string
	From, To  string // values of it
	// FromTasks and ToTasks are how many tasks of the job stay there now: they
	// differ by two at least, but where the job says how many it wants where.
	FromTasks, ToTasks int
	// FromWanted and ToWanted are how many tasks are wanted there, -1 if that is not said.
	FromWanted, ToWanted int
	Machine              string // that the task would get
}

// Uneven reports whether a task that a machine holds would get another one, if it
// were placed now, that is better for the spread of its job. The ask is the task's,
// whom the caller has removed from the snapshot. Nobody is evicted for that, and nobody
// loses what it must be near.
func (s *Snapshot) Uneven(a Ask, machine string) (Uneven, bool) {
	from, ok := s.slots.Get(machine)
	if !ok {
		return Uneven{}, false
	}
	c := s.single(&a)
	c.epoch, c.cursor = s.epoch, -1
	s.examine(c)
	first, _ := c.Best(s.openDomains(c))
	if first < 0 {
		return Uneven{}, false
	}
	to := c.slots[first]
	was, is := s.companyOf(c, from), s.companyOf(c, to)
	if !is.less(was) || !s.leavesEven(c, from, to, 0) || s.isNeeded(s.profileOf(c.job, a.Relations), -1, from, to) {
		return Uneven{}, false
	}
	out := Uneven{
		Attribute: MachineAttribute, From: machine, To: s.nodes.At(to).Name, Machine: s.nodes.At(to).Name,
		FromTasks: int(was.onMachine) + 1, ToTasks: int(is.onMachine), FromWanted: -1, ToWanted: -1,
	}
	switch {
	case is.outer < was.outer:
		n := c.nest
		f, t := n.outer.At[from], n.outer.At[to]
		stay := s.tallyOf(c.job, n.outer).Stay
		out.Attribute, out.From, out.To = s.outerOf(&a), n.outer.Values[f], n.outer.Values[t]
		out.FromTasks, out.ToTasks, out.FromWanted, out.ToWanted = int(stay[f])+1, int(stay[t]), n.wantedIn(f), n.wantedIn(t)
	case is.inDomain < was.inDomain:
		column, outer := c.layout.Column, s.outerOf(&a)
		out.Attribute, out.From, out.To = cmp.Or(a.Then, c.spread), domain(column.Values[column.At[from]], outer), domain(column.Values[column.At[to]], outer)
		out.FromTasks, out.ToTasks = int(was.inDomain)+1, int(is.inDomain)
	}
	return out, true
}

// skewLimits returns the limits that skews were made of.
func (c *wants) skewLimits() (out []SkewLimit) {
	for _, k := range c.skews {
		out = append(out, k.SkewLimit)
	}
	return out
}

func (s *Snapshot) skewsOf(limits []SkewLimit) (out []*skew) {
	for _, l := range limits {
		out = append(out, &skew{SkewLimit: l, column: s.column(l.Attribute), shapes: -1, changes: -1})
	}
	return out
}

// countsOf returns how many tasks of a class's job stay, by value of an attribute; nil if it
// is no matter, since there are no others.
func (s *Snapshot) countsOf(c *class, x *layout.Column) []int32 {
	if c.job < 0 {
		return nil
	}
	return s.tallyOf(c.job, x).Stay
}

// expects reports whether tasks of a class's job are on their way, see ClaimMove.
func (s *Snapshot) expects(c *class) bool { return c.job >= 0 && len(s.jobs.At(c.job).coming) > 0 }

// arrived returns of what countsOf does how many are there, rather than on their way.
func (s *Snapshot) arrived(c *class, x *layout.Column) []int32 {
	stay := s.countsOf(c, x)
	if !s.expects(c) {
		return stay
	}
	stay = slices.Clone(stay)
	for _, slot := range s.jobs.At(c.job).coming {
		stay[x.At[slot]]--
	}
	return stay
}

// weigh brings up to date which domains may get one task more of a class.
func (s *Snapshot) weigh(c *class, k *skew) {
	changes, came := 0, int32(-1)
	if c.job >= 0 {
		j := s.jobs.At(c.job)
		if changes = j.changes; !s.expects(c) {
			came = j.came
		}
	}
	same := k.shapes == s.shapes
	if same && k.changes == changes {
		return
	}
	if !same {
		s.findDomains(c, k)
	}
	stay, one := s.countsOf(c, k.column), same && changes == k.changes+1 && came >= 0
	k.shapes, k.changes = s.shapes, changes
	if !one || !k.come(k.column.At[came], stay) {
		k.weigh(s.arrived(c, k.column), stay)
	}
}

// findDomains finds the domains that may get tasks of a class.
func (s *Snapshot) findDomains(c *class, k *skew) {
	k.eligible = make([]bool, len(k.column.Values))
	k.domains = 0
	for slot := range s.nodes.Len() {
		v := k.column.At[slot]
		if v == 0 || k.eligible[v] || s.rows.At(slot).state != stateUp || conditionOf(s.nodes.At(slot).Conditions, c.priority) != fine || !s.suits(c, slot) {
			continue
		}
		k.eligible[v] = true
		k.domains++
	}
}

// skewed returns the limit that keeps a class from a machine; nil for none.
func (s *Snapshot) skewed(c *class, slot int32) *skew {
	for _, k := range c.skews {
		v := k.column.At[slot]
		if c.lenient && k == c.ranked && v != 0 {
			continue
		}
		if s.weigh(c, k); !k.open[v] {
			return k
		}
	}
	return nil
}

// rankSkew finds the skew over the attribute by which candidates are ranked. There is none while
// tasks of the job are on their way: of two domains with as many tasks one may be open then, and
// the other not. If they have come to be so since, what finds no place is examined afresh.
func (s *Snapshot) rankSkew(c *class) {
	c.ranked, c.byDomain = nil, nil
	if s.expects(c) {
		return
	}
	for _, k := range c.skews {
		if k.column == c.layout.Column && c.nest == nil && c.Tally != nil && c.ranked == nil {
			s.weigh(c, k)
			c.ranked, c.byDomain = k, make([]int32, len(k.column.Values))
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

// openDomains returns which domains may get one task more, of those by which candidates are
// ranked; nil for all.
func (s *Snapshot) openDomains(c *class) []bool {
	if c.ranked == nil {
		return nil
	}
	s.weigh(c, c.ranked)
	return c.ranked.open
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
		s.weigh(c, k)
		turned, ok := k.follow()
		if k == c.ranked {
			continue
		}
		if !ok {
			return false
		}
		for _, v := range turned {
			if k.open[v] && !c.whole() { // its machines may be no candidates
				return false
			}
			for _, slot := range s.machinesOf(k.column).Of(v) {
				if i := c.candidate(slot); i >= 0 {
					c.seen[i]-- // whatever it was, it is out of date
					s.rescore(c, i)
				}
			}
		}
	}
	return true
}

// candidate returns which candidate of a class a machine is; -1 for none.
func (c *class) candidate(slot int32) int32 {
	at := c.layout.At
	if c.whole() {
		return at[slot]
	}
	i, ok := slices.BinarySearchFunc(c.slots, at[slot], func(x, place int32) int { return cmp.Compare(at[x], place) })
	if !ok {
		return -1
	}
	return int32(i)
}

// machinesOf returns the machines by their values of an attribute.
func (s *Snapshot) machinesOf(x *layout.Column) *layout.Members {
	m := s.members[x]
	if m == nil {
		if s.members == nil {
			s.members = map[*layout.Column]*layout.Members{}
		}
		m = x.Members()
		s.members[x] = m
	}
	return m
}

// scoredSkew notes that all scores of a class were made afresh.
func (s *Snapshot) scoredSkew(c *class) {
	for _, k := range c.skews {
		s.weigh(c, k)
		k.scored, k.turned, k.many = append(k.scored[:0], k.open...), k.turned[:0], false
	}
	if c.ranked != nil {
		for i, slot := range c.slots {
			if c.Score[i] > tournament.Infeasible {
				c.byDomain[c.ranked.column.At[slot]]++
			}
		}
	}
}

// leavesEven reports whether a task of a class may leave a machine for another, as far as
// skew is concerned. The machine still holds as many of the class's tasks that go.
func (s *Snapshot) leavesEven(c *class, from, to, held int32) bool {
	for _, k := range c.skews {
		s.weigh(c, k)
		stay := s.countsOf(c, k.column)
		f := k.column.At[from]
		if !k.mayLeave(f, k.column.At[to], tasksIn(stay, f)-held, stay) {
			return false
		}
	}
	return true
}
