package placement

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/placement/tournament"
	"github.com/musterhq/muster/schema"
)

// class is a set of asks that any machine treats alike, and what is known of
// how machines treat them.
type class struct {
	key string
	id  uint64 // hash of the key
	job int32  // or -1 when what the job has elsewhere is no matter
	// beyond is how far the asks are larger than what the cell holds, see Snapshot.beyond.
	beyond float32
	// plain says that they want nothing that some machines lack.
	plain bool
	// protected says that tasks of the asks are not evicted once they are placed.
	protected bool
	// holder names for what machines are held where tasks came behind the ask, see yieldedBy.
	holder string
	// ruthless has the class evict also what is protected, to see what comes of it.
	ruthless bool
	wants
	scores
	progress

	refusal   refusal
	evict     evictions
	foresight foresight
}

// wants is what the asks of a class want of a machine, made ready to be asked of many.
// It stays as it is.
type wants struct {
	ask      *Ask   // see restOf
	spread   string // see spreadOf
	nest     *nest  // nil for none
	prod     bool
	lasts    time.Duration // 0 if that is not known
	inSet    bool
	priority int16
	below    int16 // tasks of lower priorities may be evicted for the class
	limit    vector
	ports    int32    // that may have any number
	numbers  []uint16 // of ports that ask for one; nil if none does
	shared   []uint16 // Ask.AllocNumbers
	needs    device.Choice
	apart    []int32 // jobs, see Ask.Apart
	with     []int32 // jobs whose tasks stay where a machine is held for the class, see gathering.describe
	rules    []rule
	anyOf    [][]rule
	wishes   []wish
	bounds   []bound
	skews    []*skew
	user     string
	tolerant bool            // of all taints, as what runs in an alloc
	kin      *kin            // nil if relations are no matter
	avoid    map[string]bool // by machine
	packages []int32
	shape    [dims + 1]float32 // direction of what is asked, length 1
}

// scores is what is known of the machines for a class, as of an epoch and a position in
// the snapshot's log.
type scores struct {
	tournament.Standing
	removals int // of the snapshot, for which that holds
	layout   *layout.Layout
	// slots are the candidates, in the layout's order: all machines, or those
	// that were found to have room.
	slots []int32
	seen  []uint32 // version of the machine that was scored, by candidate

	epoch    int // of the snapshot, for which all this holds
	position int // in the log, up to which it holds
	changes  int // of the job
	flips    int // position in the snapshot's list of them, up to which it holds
	// ranked is the skew over the attribute by whose domains candidates are ranked; nil for
	// none. Candidates are those of all domains, and those of the domains that may get none are
	// passed over. Of these there are so many in each.
	ranked   *skew
	byDomain []int32
	// lenient is true while candidates are looked for.
	lenient bool
	// remembered is how much of Snapshot.remembered is the class's.
	remembered int
}

// progress is how far the decisions about the asks of a class have come.
type progress struct {
	pass     int  // the last for which the scores were brought up to date
	lone     bool // one ask so far, for which nothing is kept
	examined int
	feasible int  // of them
	cursor   int  // in the ring, where to go on
	all      bool // the candidates are all that have room
	sought   int  // the last pass in which all machines were asked whether they have
	waiting  int  // asks of the class not yet decided in this pass
}

// wish is a preference made ready to be asked of many machines.
type wish struct {
	rule
	weight float32 // -1 to 1
}

// bound is a DomainLimit made ready to be asked of many machines.
type bound struct {
	column     *layout.Column
	most       int32
	perMachine bool
}

// classOf returns the class of an ask.
func (p *pass) classOf(a *Ask, job int32) *class {
	s := p.snapshot
	j := s.jobs.At(job)
	if c := j.recent; c != nil && (c.pass == s.passes || c.foresight.pass == s.passes && p.social(job) == (c.job >= 0)) && alike(a, j.recentAsk) && s.yieldedBy(a) == c.holder && !s.options.NoClasses && s.options.Policy != Random {
		return c
	}
	c := p.find(a, job)
	j = s.jobs.Edit(job)
	j.recent, j.recentAsk = c, a
	return c
}

// alike reports, quickly, whether two asks of one job surely are of one class.
// Where they are but it says no, only time is lost.
func alike(a, b *Ask) bool {
	return a.Limit == b.Limit && a.Priority == b.Priority && a.Lasts == b.Lasts && a.Spread == b.Spread && a.Then == b.Then && same(a.Targets, b.Targets) && a.IsAlloc == b.IsAlloc &&
		slices.Equal(a.Ports, b.Ports) && maps.Equal(a.PortNumbers, b.PortNumbers) && slices.Equal(a.AllocNumbers, b.AllocNumbers) && a.AllocSet == b.AllocSet && same(a.Devices, b.Devices) && same(a.FirstOf, b.FirstOf) && same(a.Constraints, b.Constraints) && same(a.AnyOf, b.AnyOf) && same(a.Tolerations, b.Tolerations) &&
		same(a.Preferences, b.Preferences) && same(a.PerDomain, b.PerDomain) && same(a.MaxSkew, b.MaxSkew) && same(a.Avoid, b.Avoid) &&
		same(a.Packages, b.Packages) && slices.Equal(a.Apart, b.Apart) && a.Relations == b.Relations
}

// same reports whether two slices are one, or both empty.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// find looks a class up by its key, or makes it.
func (p *pass) find(a *Ask, job int32) *class {
	s := p.snapshot
	profile := s.profileOf(job, a.Relations) // which uses scratch, too
	key := s.kindred.appendTies(s.appendKey(s.scratch[:0], a), profile)
	if s.options.NoClasses || s.options.Policy == Random {
		key = binary.AppendVarint(append(key, '#'), int64(a.Name.Index))
		key = appendStrings(key, a.Name.Cell, a.Name.User, a.Name.Job)
	} else if p.social(job) || a.Targets != nil {
		key = appendStrings(append(key, '/'), a.Name.Cell, a.Name.User, a.Name.Job)
	}
	protected := s.isProtected(job)
	if protected {
		key = append(key, '!')
	}
	s.scratch = key
	if c := s.classes[string(key)]; c != nil {
		return c
	}
	c := s.newClass(a, string(key))
	c.job, c.protected = -1, protected
	if p.social(job) || a.Targets != nil {
		c.job = job
	}
	s.classes[c.key] = c
	return c
}

// social reports whether the job has other tasks, held or asked for, so that
// it matters where these are.
func (p *pass) social(job int32) bool {
	return p.asked[job] > 1 || p.snapshot.jobs.At(job).held > 0
}

// appendKey appends all that makes machines treat an ask in its own way.
func (s *Snapshot) appendKey(b []byte, a *Ask) []byte {
	b = binary.AppendVarint(b, int64(a.Priority))
	for _, v := range vectorOf(a.Limit) {
		b = binary.AppendVarint(b, v)
	}
	if lasts := lastsOf(a); lasts > 0 {
		b = binary.AppendVarint(append(b, 'e'), int64(lasts))
	}
	if len(a.Tolerations) > 0 { // some are for certain users only
		b = appendStrings(append(b, 'u'), a.Name.User)
	}
	if holder := s.yieldedBy(a); holder != "" {
		b = appendStrings(append(b, 'y'), holder)
	}
	return appendRest(b, a)
}

// mostRests bounds the asks that restOf remembers.
const mostRests = 4096

// restOf returns what an ask wants besides its limit, under its priority and
// name. Asks that want the same share it, so that what is held of a task is
// small even where no two limits are equal.
func (s *Snapshot) restOf(a *Ask) *Ask {
	key := appendStrings(appendRest(s.scratch[:0], a), a.On)
	s.scratch = key
	if r := s.rests[string(key)]; r != nil {
		return r
	}
	if len(s.rests) >= mostRests {
		clear(s.rests) // tasks keep theirs
	}
	r := *a
	r.Name, r.Generation, r.Priority, r.Limit, r.Prefer, r.Last = schema.TaskName{}, 0, 0, schema.Resources{}, "", ""
	r.Waiting = Waiting{}
	r.Alloc, r.AllocMax, r.Together, r.Gang, r.Relations = schema.TaskName{}, 0, 0, nil, nil
	s.rests[string(key)] = &r
	return &r
}

// appendRest appends all but priority and limit.
func appendRest(b []byte, a *Ask) []byte {
	// The names of ports make no difference to machines, but what is placed
	// asks again under those of its class when it is evicted.
	b = appendStrings(b, a.Ports...)
	b = append(appendStrings(b, a.Spread), boolByte(a.IsAlloc)|boolByte(a.Everywhere)<<1)
	if len(a.Devices)+len(a.FirstOf)+len(a.Constraints)+len(a.AnyOf)+len(a.Preferences)+len(a.PerDomain)+len(a.MaxSkew)+len(a.Avoid)+len(a.Packages)+len(a.Apart)+len(a.PortNumbers)+len(a.Tolerations)+len(a.Then)+len(a.Targets) == 0 &&
		a.AllocSet == (schema.JobName{}) {
		return b
	}
	b = appendDevices(b, a.Devices)
	for _, all := range a.FirstOf {
		b = appendDevices(append(b, 'h'), all)
	}
	b = appendConstraints(b, a.Constraints)
	for _, all := range a.AnyOf {
		b = appendConstraints(append(b, 'o'), all)
	}
	for _, w := range a.Preferences {
		b = appendStrings(append(b, 'w'), append([]string{w.Attribute, string(w.Op)}, w.Values...)...)
		b = binary.AppendVarint(b, int64(w.Weight))
	}
	for _, t := range a.Tolerations {
		b = appendStrings(append(b, 't'), t.Key, t.Value)
	}
	for _, l := range a.PerDomain {
		b = binary.AppendVarint(appendStrings(append(b, 'l'), l.Attribute), int64(l.Max))
	}
	for _, l := range a.MaxSkew {
		b = binary.AppendVarint(appendStrings(append(b, 'k'), l.Attribute), int64(l.Max))
		b = binary.AppendVarint(b, int64(l.MinDomains))
	}
	if a.Then != "" {
		b = appendStrings(append(b, 'f'), a.Then)
	}
	for _, t := range a.Targets {
		b = binary.AppendVarint(appendStrings(append(b, 'g'), t.Value), int64(t.Tasks))
	}
	for _, name := range slices.Sorted(maps.Keys(a.PortNumbers)) {
		b = binary.AppendVarint(appendStrings(append(b, 'n'), name), int64(a.PortNumbers[name]))
	}
	b = appendStrings(append(b, 'a'), a.Avoid...)
	b = appendStrings(append(b, 'p'), a.Packages...)
	for _, name := range a.Apart {
		b = appendStrings(append(b, 'q'), name.Cell, name.User, name.Job)
	}
	b = appendStrings(append(b, 's'), a.AllocSet.Cell, a.AllocSet.User, a.AllocSet.Job)
	for _, n := range a.AllocNumbers {
		b = binary.AppendVarint(append(b, 'm'), int64(n))
	}
	return b
}

func appendDevices(b []byte, list []DeviceAsk) []byte {
	for _, d := range list {
		b = appendStrings(append(b, 'd'), append([]string{d.Kind}, d.Models...)...)
		b = binary.AppendVarint(binary.AppendVarint(b, int64(d.Count)), int64(d.Milli))
		b = binary.AppendVarint(appendStrings(b, d.Same), int64(len(d.Constraints)))
		b = appendConstraints(b, d.Constraints)
	}
	return b
}

func appendConstraints(b []byte, list []Constraint) []byte {
	for _, c := range list {
		b = appendStrings(append(b, 'c'), append([]string{c.Attribute, string(c.Op)}, c.Values...)...)
	}
	return b
}

// avoidedBy returns the machines that an ask avoids, nil for none: there may be many.
func avoidedBy(a *Ask) map[string]bool {
	if len(a.Avoid) == 0 {
		return nil
	}
	out := make(map[string]bool, len(a.Avoid))
	for _, name := range a.Avoid {
		out[name] = true
	}
	return out
}

func (s *Snapshot) newClass(a *Ask, key string) *class {
	numbers := numbersOf(a)
	c := &class{
		key: key, id: layout.Hash(key), scores: scores{epoch: -1}, holder: s.yieldedBy(a),
		wants: wants{
			ask: s.restOf(a), prod: a.Priority.Prod(), lasts: lastsOf(a), inSet: a.AllocSet != (schema.JobName{}), priority: int16(a.Priority), below: int16(a.Priority.PreemptsBelow()),
			limit: vectorOf(a.Limit), ports: int32(len(a.Ports) - len(numbers)), numbers: numbers, needs: s.kinds.choice(a),
			user: a.Name.User, tolerant: a.AllocSet != (schema.JobName{}), kin: s.kindred.kinOf(s.profileOf(s.jobID(a.Name.JobName), a.Relations)), avoid: avoidedBy(a), packages: s.packages.NumbersOf(a.Packages), shared: narrow(a.AllocNumbers),
		},
	}
	for _, name := range a.Apart {
		c.apart = append(c.apart, s.jobID(name))
	}
	c.rules = rulesOf(a.Constraints, s.column)
	for _, all := range a.AnyOf {
		c.anyOf = append(c.anyOf, rulesOf(all, s.column))
	}
	for _, w := range a.Preferences {
		c.wishes = append(c.wishes, wish{rulesOf([]Constraint{w.Constraint}, s.column)[0], float32(min(max(w.Weight, -100), 100)) / 100})
	}
	for _, l := range a.PerDomain {
		c.bounds = append(c.bounds, bound{s.column(l.Attribute), int32(l.Max), l.Attribute == MachineAttribute})
	}
	c.skews = s.skewsOf(a.MaxSkew)
	c.spread, c.nest = s.spreadOf(a), s.nestOf(a)
	for d := range dims {
		c.shape[d] = float32(c.limit[d]) * s.typical.Scale[d]
	}
	c.shape[dims] += float32(c.needs.Milli(0)) * s.typical.Scale[dims]
	normalise(&c.shape)
	c.plain = s.isPlain(c)
	c.beyond = s.beyond(c)
	return c
}

// stale reports whether what is known of the class is void.
func (s *Snapshot) stale(c *class, epoch, position int) bool {
	return epoch != s.epoch || position < s.trimmed ||
		c.job >= 0 && c.bounds != nil && s.jobs.At(c.job).changes != c.changes
}

// update brings the scores of a class up to date with what changed.
func (s *Snapshot) update(c *class) {
	switch {
	case s.stale(c, c.epoch, c.position), s.small && !c.whole(), !s.follow(c), !s.followSkew(c), (c.nest != nil || c.wishful()) && !c.whole() && c.removals != s.removals:
		c.cursor = -1
		s.examine(c)
	case c.position == s.now():
	case c.whole() && s.now()-c.position < len(c.slots):
		for _, slot := range s.log[c.position-s.trimmed:] {
			s.rescore(c, c.layout.At[slot])
		}
	default:
		for i, slot := range c.slots {
			if c.seen[i] != s.rows.At(slot).version {
				s.rescore(c, int32(i))
			}
		}
	}
	c.position = s.now()
	if c.removals != s.removals {
		c.removals = s.removals
		c.RankAll()
	}
}

// whole reports whether all machines are candidates.
func (c *class) whole() bool { return len(c.slots) == len(c.layout.Slots) }

// examine scores machines afresh: all of them, or, relaxed, as many as it
// takes to find enough with room, going on where the last search ended.
func (s *Snapshot) examine(c *class) {
	c.layout = s.layoutFor(c.spread)
	c.epoch, c.position, c.flips = s.epoch, s.now(), s.kindred.flipNow()
	c.Tally, c.Outer = nil, nil
	if c.job >= 0 {
		c.changes = s.jobs.At(c.job).changes
		if len(c.layout.Column.Values) > 1 && !c.nest.isFlat() {
			c.Tally = s.tallyOf(c.job, c.layout.Column)
		}
		if c.nest != nil {
			c.Outer = c.nest.over(s.tallyOf(c.job, c.nest.outer))
		}
	}
	s.rankSkew(c)
	total := len(c.layout.Slots)
	enough := s.enough() + max(c.waiting, 1)
	c.examined, c.feasible, c.all = 0, 0, true
	if s.options.NoRelaxed || s.small || enough >= total {
		s.examineAll(c)
		return
	}
	if c.cursor < 0 {
		// All classes start at the same machine: the first of the ring fill
		// up first, which packs better than a start of each class's own.
		c.cursor = 0
	}
	c.slots = c.slots[:0]
	s.sampleFavoured(c, enough-s.enough()/2)
	passed := s.sample(c, enough)
	if c.all = c.examined == total && !passed; c.examined == total {
		c.sought = s.passes
	}
	slices.Sort(c.slots)
	c.slots = slices.Compact(c.slots)
	c.feasible = len(c.slots)
	c.examined = max(c.examined, c.feasible)
	c.Score, c.seen = slices.Grow(c.Score[:0], c.feasible)[:c.feasible], slices.Grow(c.seen[:0], c.feasible)[:c.feasible]
	for i, at := range c.slots {
		slot := c.layout.Slots[at]
		c.slots[i], c.Score[i], c.seen[i] = slot, s.worth(c, slot), s.rows.At(slot).version
	}
	c.Blocks = c.layout.Cut(c.slots, c.Blocks)
	for b := range c.Blocks {
		c.FindBest(&c.Blocks[b])
	}
	c.removals = s.removals
	c.RankAll()
	s.scoredSkew(c)
}

// enough is how many machines with room are enough to choose among.
func (s *Snapshot) enough() int {
	if s.options.Enough > 0 {
		return s.options.Enough
	}
	return DefaultEnough
}

func (s *Snapshot) examineAll(c *class) {
	c.slots = c.layout.Slots // shared: candidates are never written in place
	n := len(c.slots)
	c.examined = n
	c.Score, c.seen = slices.Grow(c.Score[:0], n)[:n], slices.Grow(c.seen[:0], n)[:n]
	for i, slot := range c.slots {
		c.seen[i] = s.rows.At(slot).version
		c.Score[i] = tournament.Infeasible
		if s.isCandidate(c, slot) {
			c.Score[i] = s.worth(c, slot)
			c.feasible++
		}
	}
	c.Blocks = append(c.Blocks[:0], c.layout.Blocks...)
	for b := range c.Blocks {
		c.FindBest(&c.Blocks[b])
	}
	c.removals = s.removals
	c.RankAll()
	s.scoredSkew(c)
}

// rescore scores one candidate again and updates the best of its block.
func (s *Snapshot) rescore(c *class, i int32) {
	slot := c.slots[i]
	if c.seen[i] == s.rows.At(slot).version {
		return
	}
	c.seen[i] = s.rows.At(slot).version
	was, now := c.Score[i], tournament.Infeasible
	if s.isCandidate(c, slot) {
		now = s.worth(c, slot)
	}
	c.Score[i] = now
	switch {
	case was == now:
		return
	case was == tournament.Infeasible:
		c.countCandidate(i, 1)
	case now == tournament.Infeasible:
		c.countCandidate(i, -1)
	}
	k := c.BlockOf(i)
	b := &c.Blocks[k]
	switch {
	case b.Best == i && now < was:
		c.FindBest(b)
	case b.Best == i:
	case now > tournament.Infeasible && (b.Best < 0 || now > c.Score[b.Best] || now == c.Score[b.Best] && i < b.Best):
		b.Best = i
	default:
		return
	}
	c.Rank(int32(k))
}

// countCandidate counts a candidate that has room now, or none any more.
func (c *class) countCandidate(i int32, by int) {
	c.feasible += by
	if c.ranked != nil {
		c.byDomain[c.ranked.column.At[c.slots[i]]] += int32(by)
	}
}

// spreadOf returns the attribute over whose values, one by one, the job of an ask is spread.
func (s *Snapshot) spreadOf(a *Ask) string {
	outer := s.outerOf(a)
	if a.Then == "" || outer == NoSpread {
		return outer
	}
	return schema.Nested(outer, a.Then)
}

func (s *Snapshot) outerOf(a *Ask) string {
	switch {
	case a.Spread != "":
		return a.Spread
	case s.options.Spread != "":
		return s.options.Spread
	}
	return DefaultSpread
}

// nestOf returns the outer domains of an ask, nil for none.
func (s *Snapshot) nestOf(a *Ask) *nest {
	if s.outerOf(a) == NoSpread || a.Then == "" && a.Targets == nil {
		return nil
	}
	return &nest{outer: s.column(s.outerOf(a)), inner: s.column(s.spreadOf(a)), targets: a.Targets}
}

// follow takes over what relations have become otherwise for a class. It reports false
// when machines have to be examined afresh.
func (s *Snapshot) follow(c *class) bool {
	if c.kin == nil || c.flips == s.kindred.flipNow() {
		return true
	}
	concerns, known := s.kindred.concerns(c.kin, c.flips)
	if !known {
		return false
	}
	for _, w := range concerns {
		if w.all || w.more && !c.whole() {
			return false
		}
		for i, slot := range c.slots {
			if w.column.At[slot] == w.value {
				c.seen[i]-- // whatever it was, it is out of date
				s.rescore(c, int32(i))
			}
		}
	}
	c.flips = s.kindred.flipNow()
	return true
}

// classBudget is how many candidates all remembered classes may have together.
const classBudget = 16 << 20

// prune forgets the classes of lone asks, and all when there are too many to
// remember. It looks at those of this pass only.
func (p *pass) prune() {
	s := p.snapshot
	for _, c := range p.classes {
		if c.lone && c.refusal.by == nil {
			delete(s.classes, c.key)
			s.remembered -= c.remembered
			continue
		}
		now := len(c.Score) + len(c.refusal.by)/4 + 256
		s.remembered += now - c.remembered
		c.remembered = now
	}
	if s.remembered > classBudget || s.options.NoCache || s.options.NoClasses {
		s.remembered = 0
		clear(s.classes)
	}
}

// beside returns what asks of two classes want of a machine together.
func (c *class) beside(other *class) *class {
	both := *c
	for d := range dims {
		both.limit[d] += other.limit[d]
	}
	both.ports += other.ports
	both.numbers = slices.Concat(both.numbers, other.numbers)
	both.needs = both.needs.With(other.needs)
	if both.kin == nil {
		both.kin = other.kin
	}
	return &both
}
