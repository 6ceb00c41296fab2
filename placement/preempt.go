package placement

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/schema"
)

// eviction is a set of tasks of one machine that make room for an ask.
type eviction struct {
	slot    int32
	victims []int32 // tasks
	cost    evictionCost
}

// evictionCost orders evictions; the least is chosen. The fields are compared in the
// order of compare, which is the rule: the fewest disruptions beyond the budgets of jobs,
// then the domain in which the fewest tasks of the ask's job stay, then lowest priority
// first, then fewest victims, of a job whose tasks go
// together all that run, then the lower sum of priorities, then what the ask wishes of
// the machine, then that on which the fewest tasks of the job stay, then the least that is
// given up beyond the need, then the fewest jobs hit a second time, see Snapshot.again,
// then those that came to their machine last, in the mean: the least work is lost.
type evictionCost struct {
	highest  int16 // priority among the victims
	victims  int16
	again    int16 // victims whose jobs lose others, too
	overruns int16
	sum      int32   // of their priorities
	unmet    float32 // what the ask wishes and would not have, see Snapshot.lessUnmet
	excess   float32 // what goes and is not needed, in multiples of the ask
	since    int64   // of the victims in the mean, see sinceOf
	company  company
}

func (a *evictionCost) compare(b *evictionCost) int {
	return cmp.Or(cmp.Compare(a.overruns, b.overruns), a.company.compareDomains(b.company),
		cmp.Compare(a.highest, b.highest), cmp.Compare(a.victims, b.victims), cmp.Compare(a.sum, b.sum),
		cmp.Compare(a.unmet, b.unmet), cmp.Compare(a.company.onMachine, b.company.onMachine),
		cmp.Compare(a.excess, b.excess), cmp.Compare(a.again, b.again), cmp.Compare(b.since, a.since))
}

// impossible is the level of a machine on which no eviction makes room.
const impossible = int16(-1)

// evictions is what a class could evict, machine by machine.
type evictions struct {
	epoch  int
	passes int
	flips  int // of the snapshot, for which the pool holds
	// changes and skews are of the class, where bounds make them matter.
	changes, skews int
	cursor         int // in the ring, where to go on
	// pool is the machines on which an eviction could make room.
	pool []candidate
	// wished are machines that the class favours, as far as not all have been checked.
	wished wished
	// circled is true when all machines have been checked; position is
	// where in the log that was.
	circled  bool
	position int
}

// candidate is a machine of the pool.
type candidate struct {
	slot    int32
	version uint32 // of the machine, for which the rest holds
	// level is the lowest priority up to which tasks must be evicted so that
	// there is room: the first term of the cost, without which the others
	// need not be known.
	level int16
	// unmet is what the ask wishes and would not have there if nobody went, as a sign of
	// what it would not have.
	unmet  float32
	solved bool
	plan   eviction
	// costly says that no eviction here keeps all budgets: budgets only shrink
	// in a pass.
	costly bool
}

// preempt makes room for an ask by evicting tasks of lower priority from the
// machine on which that costs the least, and asks for the victims again.
func (p *pass) preempt(c *class, a *Ask, job int32, d *Decision) bool {
	s := p.snapshot
	if !s.anyLower(c) {
		return false
	}
	e := &c.evict
	changes, skews := 0, s.skewVersion(c)
	if c.job >= 0 && c.bounds != nil {
		changes = s.jobs.At(c.job).changes
	}
	if e.epoch != s.epoch || e.passes != s.passes || c.kin != nil && e.flips != s.kindred.flipNow() || e.changes != changes || e.skews != skews {
		*e = evictions{epoch: s.epoch, passes: s.passes, flips: s.kindred.flipNow(), changes: changes, skews: skews, cursor: -1, pool: e.pool[:0]}
		s.extend(c, s.enough()+c.waiting)
	}
	plan, ok := s.sparing(c)
	if !ok {
		plan, ok = s.cheapest(c, false)
	}
	if !ok { // the pool is used up
		s.extend(c, s.enough()+c.waiting)
		plan, ok = s.cheapest(c, false)
	}
	if ok && s.wishesMore(c, &plan.cost) && s.extendFavoured(c) {
		if plan, ok = s.sparing(c); !ok {
			plan, ok = s.cheapest(c, false)
		}
	}
	if ok {
		d.Overruns = int(plan.cost.overruns)
		p.evict(c, a, job, plan, d)
	}
	return ok
}

// sparing returns the cheapest eviction that keeps the budgets of all jobs; false
// if there is none in the whole cell, or no job has a budget.
func (s *Snapshot) sparing(c *class) (eviction, bool) {
	if s.budgetOf == nil {
		return eviction{}, false
	}
	plan, ok := s.cheapest(c, true)
	if !ok && s.bounded && !c.evict.circled {
		s.extend(c, int(s.nodes.Len())+1)
		plan, ok = s.cheapest(c, true)
	}
	return plan, ok
}

// anyLower reports whether the cell holds any task that the class might evict.
func (s *Snapshot) anyLower(c *class) bool {
	if c.holder != "" {
		return true
	}
	for _, n := range s.ofPriority[:bounded(c.below)] {
		if n > 0 {
			return true
		}
	}
	return false
}

// extend looks, along the ring, for machines on which an eviction could make
// room: for all, or, relaxed, for enough.
func (s *Snapshot) extend(c *class, enough int) {
	e := &c.evict
	if e.circled && e.position >= s.trimmed {
		s.reconsider(c)
		return
	}
	l := s.layoutFor(c.spread)
	total := len(l.Ring)
	if total == 0 {
		return
	}
	if e.cursor < 0 {
		e.cursor = int(c.id % uint64(total))
	}
	e.pool, e.wished = e.pool[:0], wished{}
	e.circled, e.position = true, s.now()
	for range total {
		slot := l.Ring[e.cursor]
		e.cursor = (e.cursor + 1) % total
		if k := s.candidateOn(c, slot); k.level != impossible {
			e.pool = append(e.pool, k)
		}
		if len(e.pool) >= enough && !s.options.NoRelaxed {
			e.circled = false
			break
		}
	}
	s.sortPool(e)
	if !e.circled {
		e.wished = wished{favourites: s.favoured(c), turn: c.id}
		s.extendFavoured(c)
	}
}

func (s *Snapshot) sortPool(e *evictions) {
	slices.SortFunc(e.pool, func(a, b candidate) int { return s.compareSlots(a.slot, b.slot) })
}

// candidateOn returns a machine as a candidate.
func (s *Snapshot) candidateOn(c *class, slot int32) candidate {
	s.weighed++
	k := candidate{slot: slot, version: s.rows.At(slot).version, level: s.level(c, slot)}
	if k.level != impossible {
		k.unmet = s.unmet(c, slot, nil)
	}
	return k
}

// unmet returns what a class wishes of a machine and would not have there when some of its tasks
// have gone, by its weight.
func (s *Snapshot) unmet(c *class, slot int32, gone []int32) float32 {
	return -s.lessUnmet(c, slot, gone, 0, nil)
}

// wished goes through the machines that a class favours, those first that meet the most. Of those
// that meet the same it begins with one or another, as turn says: those of a class that came
// before may have been used up by its asks.
type wished struct {
	favourites
	turn      uint64
	next, run int
}

// peek returns the machine whose turn it is; false if there are no more.
func (w *wished) peek() (slot int32, ok bool) {
	if w.next == len(w.list) {
		return -1, false
	}
	from := 0
	for int(w.ends[w.run]) <= w.next {
		w.run++
	}
	if w.run > 0 {
		from = int(w.ends[w.run-1])
	}
	n := uint64(int(w.ends[w.run]) - from)
	return w.list[from+int((uint64(w.next-from)+w.turn%n)%n)], true
}

// favouredLooks is how many of the machines that a class favours are asked at a time for those on
// which an eviction could make room: where most are full of what must not go, the search ends.
const favouredLooks = 1024

// extendFavoured adds machines that the class favours, as many as are solved for one ask, going on
// where it ended. It reports whether it has added any.
func (s *Snapshot) extendFavoured(c *class) bool {
	e := &c.evict
	known := e.pool // sorted
	for looks := 0; looks < favouredLooks && len(e.pool)-len(known) < enoughSolved; looks++ {
		slot, ok := e.wished.peek()
		if !ok {
			break
		}
		e.wished.next++
		if _, is := slices.BinarySearchFunc(known, slot, func(k candidate, slot int32) int { return s.compareSlots(k.slot, slot) }); is {
			continue
		}
		if k := s.candidateOn(c, slot); k.level != impossible {
			e.pool = append(e.pool, k)
		}
	}
	if len(e.pool) == len(known) {
		return false
	}
	s.sortPool(e)
	return true
}

// wishesMore reports whether a machine that the class favours, and that has not been asked, meets
// more of what it wishes than that of an eviction, while none is left in the pool that does with
// victims of such priorities: those have been used up.
func (s *Snapshot) wishesMore(c *class, than *evictionCost) bool {
	slot, ok := c.evict.wished.peek()
	if !ok {
		return false
	}
	unmet := s.unmet(c, slot, nil)
	return unmet < than.unmet && !slices.ContainsFunc(c.evict.pool, func(k candidate) bool {
		return k.unmet <= unmet && k.level != impossible && k.level <= than.highest && !k.costly
	})
}

// reconsider checks the machines that changed since all were checked.
func (s *Snapshot) reconsider(c *class) {
	e := &c.evict
	for _, slot := range s.log[e.position-s.trimmed:] {
		if slices.ContainsFunc(e.pool, func(k candidate) bool { return k.slot == slot }) {
			continue
		}
		if k := s.candidateOn(c, slot); k.level != impossible {
			e.pool = append(e.pool, k)
		}
	}
	e.position = s.now()
	s.sortPool(e)
}

// enoughSolved is how many machines of the lowest level are solved for one ask,
// relaxed, and how many that the class favours are added to the pool at a time. The next ask of the
// class goes on with others. A machine that was solved before, and is cheaper than the best as far as
// is known, is solved again however many were.
const enoughSolved = 16

// cheapest returns the eviction in the pool that costs the least; sparing, of
// those that keep the budgets of all jobs.
func (s *Snapshot) cheapest(c *class, sparing bool) (eviction, bool) {
	e := &c.evict
	best, asked := -1, 0
	var least *evictionCost // of the best, nil for none
	fickle := s.isFickle(c)
	for i := range e.pool {
		k := &e.pool[i]
		if s.refresh(c, k); k.level == impossible || sparing && k.costly && !s.ganged {
			continue
		}
		with := s.companyOf(c, k.slot) // which grows with what was placed elsewhere
		closer, worse := k.against(least, with)
		if worse {
			continue
		}
		k.plan.cost.company = with
		less := k.solved && (least == nil || k.plan.cost.compare(least) < 0)
		if k.solved && !less && !fickle {
			continue
		}
		if !less || fickle || s.isHitSince(k) {
			enough := asked >= enoughSolved && !s.options.NoRelaxed
			asked++
			if best >= 0 && !less && !closer && enough && k.level == e.pool[best].level && k.unmet >= least.unmet {
				continue
			}
			s.solveCandidate(c, k, sparing)
		}
		if k.plan.cost.company = with; k.solved && (best < 0 || k.plan.cost.compare(least) < 0) {
			best, least = i, &k.plan.cost
		}
	}
	if best < 0 {
		return eviction{}, false
	}
	return e.pool[best].plan, true
}

// isFickle reports whether what evictions cost changes with what is done on other machines: a budget
// may have shrunk, or what is near may be other tasks.
func (s *Snapshot) isFickle(c *class) bool {
	return s.bounded || s.ganged || c.kin.hasPreferred()
}

// isHitSince reports whether jobs that the eviction on a machine hits have lost tasks since it was
// found, and had lost none then. It costs more than was found, and there may be cheaper victims on
// that machine now. But none there costs less than what was found: what is not less than the least
// need not be solved again.
func (s *Snapshot) isHitSince(k *candidate) bool {
	return s.again(k.plan.victims) > k.plan.cost.again
}

// refresh finds the level of a candidate again if its machine has changed.
func (s *Snapshot) refresh(c *class, k *candidate) {
	if k.version != s.rows.At(k.slot).version {
		*k = s.candidateOn(c, k.slot)
	}
}

// against reports whether a machine, where the job would be with others in such a way,
// is in a domain with fewer of its tasks than another eviction is, and whether it
// cannot be cheaper than that whatever has to go. There may be no other, nil.
func (k *candidate) against(than *evictionCost, with company) (closer, worse bool) {
	if than == nil {
		return false, false
	}
	domains := with.compareDomains(than.company)
	closer = domains < 0
	if than.overruns > 1 { // where budgets have to be violated at all, once is the least
		return true, false
	}
	return closer, domains > 0 || !closer && k.level > than.highest
}

// solveCandidate finds what an eviction on a machine of the pool costs.
func (s *Snapshot) solveCandidate(c *class, k *candidate, sparing bool) {
	s.solved++
	k.plan, k.solved = s.solve(c, k.slot, sparing)
	switch {
	case k.solved:
	case sparing:
		k.costly = true
	default:
		k.level = impossible
	}
}

// mayEvict reports whether a task can be a victim of the class: of a priority that
// it may preempt or there on condition that it goes, not leaving anyway, and not inside an alloc, which is evicted
// whole or not at all. Whether it may go is another question, see mayGo.
func (s *Snapshot) mayEvict(c *class, t *task) bool {
	return (t.priority < c.below || s.yieldsTo(c, t)) && !t.stopping && t.inAlloc < 0
}

// level returns the lowest priority up to which tasks must be evicted.
func (s *Snapshot) level(c *class, slot int32) int16 { //nolint:gocognit // one loop with its exits; parts of it would need all of its state
	if r := s.rows.At(slot); r.state != stateUp || s.keptFrom(c, slot) || s.allows(c, slot, r) != fine || !s.near(c, slot, nil) {
		return impossible
	}
	var after []device.Device
	if c.needs != nil {
		after = slices.Clone(s.nodes.At(slot).devices)
	}
	lack, ports := s.deficit(c, slot)
	var gone []int32
	for level := int16(-1); ; {
		if lack[0] <= 0 && lack[1] <= 0 && lack[2] <= 0 && ports <= 0 && s.numbersWithout(c, slot, gone) && s.unrepelled(c, slot, gone) {
			if _, ok := c.needs.Pick(after, nil); ok {
				return max(level, 0)
			}
		}
		// The next priority up, and all that goes with it.
		next := int16(schema.MaxPriority + 1)
		for id := s.nodes.At(slot).first; id >= 0; id = s.tasks.At(id).nextHere {
			if t := s.tasks.At(id); t.priority > level && t.priority < next && s.mayEvict(c, t) && s.mayGo(c, id) {
				next = t.priority
			}
		}
		if next > schema.MaxPriority {
			return impossible
		}
		level = next
		for id := s.nodes.At(slot).first; id >= 0; id = s.tasks.At(id).nextHere {
			t := s.tasks.At(id)
			if t.priority != level || !s.mayEvict(c, t) || !s.mayGo(c, id) {
				continue
			}
			gain := s.gain(c, t)
			for d := range dims {
				lack[d] -= gain[d]
			}
			ports -= s.portGain(t)
			device.Give(after, t.devices)
			if c.numbers != nil || c.kin != nil {
				gone = append(gone, id)
			}
		}
	}
}

// evictable appends the tasks that the class may evict, lowest priority first.
func (s *Snapshot) evictable(c *class, slot int32, list []int32) []int32 {
	for id := s.nodes.At(slot).first; id >= 0; id = s.tasks.At(id).nextHere {
		if s.mayEvict(c, s.tasks.At(id)) && s.mayGo(c, id) {
			list = append(list, id)
		}
	}
	slices.SortFunc(list, s.compareVictims)
	return list
}

// mayGo reports whether a task is not protected from a class, and of an alloc whether all
// tasks inside could be evicted with it.
func (s *Snapshot) mayGo(c *class, id int32) bool {
	if s.protectedOf != nil && s.protects(c, s.tasks.At(id)) {
		return false
	}
	if !s.tasks.At(id).isAlloc {
		return true
	}
	yields := s.yieldsTo(c, s.tasks.At(id)) // and what runs inside with it
	for t := s.nodes.At(s.tasks.At(id).slot).first; t >= 0; t = s.tasks.At(t).nextHere {
		h := s.tasks.At(t)
		if h.inAlloc == id && (!yields || h.takesOthers()) && (h.priority >= c.below || s.protects(c, h)) {
			return false
		}
	}
	return true
}

// mayMakeRoom reports whether a task of a machine goes as soon as that makes room for a class.
func (s *Snapshot) mayMakeRoom(c *class, id int32) bool {
	return s.options.Preempt && s.mayEvict(c, s.tasks.At(id)) && s.mayGo(c, id)
}

// compareVictims orders tasks by priority, and those of a job by who came last.
func (s *Snapshot) compareVictims(a, b int32) int {
	t, u := s.tasks.At(a), s.tasks.At(b)
	if t.priority == u.priority && t.job == u.job && t.since != u.since {
		return cmp.Compare(u.since, t.since)
	}
	return s.compareTasks(a, b)
}

// compareTasks orders tasks by priority, and then in any order that is always
// the same.
func (s *Snapshot) compareTasks(a, b int32) int {
	t, u := s.tasks.At(a), s.tasks.At(b)
	if r := cmp.Compare(t.priority, u.priority); r != 0 {
		return r
	}
	if t.job != u.job {
		return s.jobs.At(t.job).name.Compare(s.jobs.At(u.job).name)
	}
	return cmp.Or(cmp.Compare(t.index, u.index), cmp.Compare(t.generation, u.generation))
}

// gain returns what the class gains when t goes.
func (s *Snapshot) gain(c *class, t *task) vector {
	if c.prod {
		return t.limit
	}
	return t.reserv
}

// portGain returns how many ports that the cell may give t has.
func (s *Snapshot) portGain(t *task) int {
	r := s.nodes.At(t.slot).Ports
	n := 0
	for _, p := range t.ports {
		if int(p) >= r.First && int(p) <= r.Last {
			n++
		}
	}
	return n
}

// deficit returns what the machine lacks for the class.
func (s *Snapshot) deficit(c *class, slot int32) (lack vector, ports int) {
	r := s.rows.At(slot)
	free := c.free(r)
	for d := range dims {
		lack[d] = c.limit[d] - free[d]
	}
	return lack, int(c.portsOn(s.nodes.At(slot)) - r.ports)
}

// evict carries out an eviction: the victims go, the task takes their place,
// and the victims ask again.
func (p *pass) evict(c *class, a *Ask, job int32, plan eviction, d *Decision) {
	s := p.snapshot
	if s.options.Graceful {
		p.evictLater(c, a, job, plan, d)
		return
	}
	for _, id := range plan.victims {
		for t := s.nodes.At(plan.slot).first; s.tasks.At(id).isAlloc && t >= 0; {
			next := s.tasks.At(t).nextHere
			if s.tasks.At(t).inAlloc == id {
				p.remove(t, d)
			}
			t = next
		}
		p.remove(id, d)
	}
	s.touch(plan.slot)
	d.Why.Score = s.scoreOf(c, plan.slot)
	p.commit(c, a, job, plan.slot, d)
}

// remove takes a victim off its machine and puts its ask in the queue.
func (p *pass) remove(id int32, d *Decision) {
	s := p.snapshot
	t := *s.tasks.At(id)
	v := s.victim(&t)
	d.Victims = append(d.Victims, v)
	s.drop(id)
	if t.ask == nil {
		return
	}
	again := t.again(s)
	p.asked[t.job]++
	p.levels[again.Priority] = append(p.levels[again.Priority], entry{ask: &again, job: t.job, evicted: true})
}

// again returns the ask of a task that asks again, since it is evicted.
func (t *task) again(s *Snapshot) Ask {
	out := *t.ask
	out.Name, out.Generation, out.Priority = s.jobs.At(t.job).name.Task(int(t.index)), t.generation, schema.Priority(t.priority)
	if out.Prefer, out.Last = "", ""; t.placed {
		out.Limit = t.limit.resources()
	}
	out.Relations = s.kindred.relationsOf(t.profile)
	return out
}
