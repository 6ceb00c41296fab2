package placement

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/placement/mix"
	"github.com/musterhq/muster/placement/tournament"
	"github.com/musterhq/muster/schema"
)

// pass is one run over a list of asks.
type pass struct {
	snapshot *Snapshot
	seed     uint64
	asked    map[int32]int32 // asks by job
	// returning is where asks ran last that are still to be decided, by job.
	returning map[int32][]int32
	// gangs are the asks that are placed together and still to be decided.
	gangs   map[crowd][]Ask
	levels  map[schema.Priority][]entry
	last    *class
	tight   bool              // the last lone ask found no room: ask each machine once, for the reason
	ahead   []outlook         // of asks whose turn comes next
	looks   [aheadAsks][]look // room for what is looked up for them
	classes []*class          // of the asks
	// allOrNone ends the pass at the first ask that finds no room, but for victims.
	allOrNone bool
	inOrder   bool        // asks of a priority are decided as they come
	search    int         // machines that may still be examined for gangs, see gathering.search
	together  func(entry) // decides all that an ask goes together with; nil in a pass without gangs
	out       []Decision
}

// A pass over a cell of smallCell machines at most, with smallPass machines and asks
// to compare at most, examines all machines: that takes some milliseconds. So does one of
// which an eighth at least want devices, up to devicePass, which takes up to a second: how many
// devices can be used later depends on which machines are chosen.
const (
	smallCell  = 4096
	smallPass  = 1 << 18
	devicePass = 1 << 24
)

// newPass begins a pass, without what decides gangs, see Place.
func newPass(s *Snapshot, seed uint64) *pass {
	return &pass{snapshot: s, seed: seed, asked: map[int32]int32{}, returning: map[int32][]int32{}, gangs: map[crowd][]Ask{}, levels: map[schema.Priority][]entry{}}
}

// place decides the asks of the pass.
func (p *pass) place(asks []Ask) []Decision {
	s := p.snapshot
	p.out = make([]Decision, 0, len(asks))
	s.merge()
	s.passes++
	s.putOff = false
	s.disruption.begin()
	pairs := len(asks) * s.slots.Len()
	s.small = s.slots.Len() <= smallCell && (pairs <= smallPass || pairs <= devicePass && wantDevices(asks))
	s.tasks.Reserve(len(asks) - len(s.unused))
	s.here.Reserve(len(asks))
	s.sense()
	p.enter(asks)
	for len(p.levels) > 0 && !p.failed() {
		top := schema.Priority(-1)
		for k := range p.levels {
			top = max(top, k)
		}
		level := p.levels[top]
		delete(p.levels, top)
		p.decideLevel(level)
	}
	p.end()
	return p.out
}

// end leaves the snapshot to the next pass.
func (p *pass) end() {
	s := p.snapshot
	s.endHolds()
	for job := range p.asked { // the asks are the caller's again
		j := s.jobs.Edit(job)
		j.recent, j.recentAsk = nil, nil
	}
	p.prune()
}

// enter sorts the asks into levels and learns what is typical of them.
func (p *pass) enter(asks []Ask) {
	s := p.snapshot
	shapes := map[mix.Shape]int{}
	var last schema.JobName
	var job int32 = -1
	var same int // asks like the one before
	for i := range asks {
		a := &asks[i]
		if job < 0 || a.Name.JobName != last {
			job, last = s.jobID(a.Name.JobName), a.Name.JobName
		}
		p.asked[job]++
		s.noteHeld(a)
		s.profileOf(job, a.Relations) // so that all terms are known before the first decision
		if slot, ok := s.slots.Get(a.Last); ok {
			p.returning[job] = append(p.returning[job], slot)
		}
		p.levels[a.Priority] = append(p.levels[a.Priority], entry{ask: a, job: job})
		if a.gathers() {
			p.gangs[crowdOf(a)] = append(p.gangs[crowdOf(a)], *a)
		}
		if i > 0 && a.Limit == asks[i-1].Limit && !a.wantsDevices() && !asks[i-1].wantsDevices() {
			same++
			continue
		}
		if i > 0 {
			shapes[shapeOfAsk(&asks[i-1])] += 1 + same
		}
		same = 0
	}
	if len(asks) > 0 {
		shapes[shapeOfAsk(&asks[len(asks)-1])] += 1 + same
	}
	s.learn(shapes, len(asks))
}

// decideLevel decides the asks of one priority.
func (p *pass) decideLevel(level []entry) {
	if p.inOrder {
		p.decideInTurn(level)
		return
	}
	level = p.decideWaiters(level)
	p.sort(level)
	users, ample := queuesOf(level), p.ample(level)
	if !ample && len(level) >= manyAsks && !p.snapshot.options.keepsOrder() {
		if p.decideAsTheyCome(level) {
			return
		}
		largestFirst(users, p.snapshot.sizeOf)
	}
	p.decideInTurn(turnsOf(users, ample, len(level)))
}

// decideAsTheyCome decides a level of which an eighth at least want devices, or that wants an eighth of
// those that are free, in the order in which they come, if all find room so, and reports whether. Largest first, what wants a few devices takes
// the machines that have no more, and what wants one or a part of one is left on machines for many.
// Those stay in pieces for as long as it runs, and what wants many later waits. Where all find room by
// the rules of a steady cell, that is how they are decided: these leave room in one piece, the others
// find some for more asks. It is seen on forks
// first, up to the first that finds no room: a fork has no scores, so in a cell with a backlog the
// rest would cost more than the pass.
func (p *pass) decideAsTheyCome(level []entry) bool {
	s := p.snapshot
	var milli int64
	wanting := 0
	for _, e := range level {
		if e.evicted || e.ask.gathers() {
			return false
		}
		if n := e.ask.devices(); n > 0 {
			milli += n
			wanting++
		}
	}
	if wanting == 0 || 8*wanting < len(level) && 8*milli < s.devicesFree || milli > s.devicesFree {
		return false
	}
	return !s.typical.Steady && p.decideOnFork(level, true) || p.decideOnFork(level, false)
}

// decideOnFork decides a level in the order in which it comes, if all find room so, and reports
// whether: with steady by the rules of a steady cell.
func (p *pass) decideOnFork(level []entry, steady bool) bool {
	s := p.snapshot
	asks := make([]Ask, 0, len(level))
	asked := make(map[schema.TaskName]*Ask, len(level))
	for _, e := range level {
		asks = append(asks, *e.ask)
		asked[e.ask.Name] = e.ask
	}
	fork := s.Fork()
	fork.options.OneByOne, fork.options.Preempt, fork.options.steady = true, false, steady
	trial := newPass(fork, p.seed)
	trial.allOrNone = true
	decisions := trial.place(asks)
	failed := trial.failed()
	fork.Release()
	s.merge()
	if failed {
		return false
	}
	for _, e := range level {
		p.returned(e)
	}
	p.takeOver(decisions, asked)
	return true
}

// wantDevices reports whether an eighth at least of the asks want devices.
func wantDevices(asks []Ask) bool {
	wanting := 0
	for i := range asks {
		if asks[i].wantsDevices() {
			wanting++
		}
	}
	return wanting > 0 && 8*wanting >= len(asks)
}

// failed reports whether the pass has ended before all asks were decided.
func (p *pass) failed() bool {
	if !p.allOrNone || len(p.out) == 0 {
		return false
	}
	last := &p.out[len(p.out)-1]
	return last.Machine == "" && !last.Evicted
}

// manyAsks is how many asks are worth the look whether there is ample room.
const manyAsks = 256

// ample reports whether a level's asks take less than half of what is free in
// every dimension, and want nothing but room. Nobody then comes short by the
// order, and a turn is a whole job, which is several times faster.
func (p *pass) ample(level []entry) bool {
	if len(level) < manyAsks {
		return false
	}
	s := p.snapshot
	var asked, free [dims]float64
	for _, e := range level {
		a := e.ask
		if a.wantsDevices() || len(a.Constraints)+len(a.AnyOf)+len(a.Tolerations)+len(a.PerDomain)+len(a.MaxSkew)+len(a.Avoid) > 0 || a.AllocSet != (schema.JobName{}) || s.kindred.binds(s.profileOf(e.job, a.Relations)) {
			return false
		}
		for d, v := range vectorOf(a.Limit) {
			asked[d] += float64(v)
		}
	}
	prod := level[0].ask.Priority.Prod()
	for slot := range s.rows.Len() {
		r := s.rows.At(slot)
		left := &r.byReserv
		if prod {
			left = &r.byLimit
		}
		for d := range dims {
			if r.state == stateUp {
				free[d] += float64(max(left[d], 0))
			}
		}
	}
	return 2*asked[0] <= free[0] && 2*asked[1] <= free[1] && 2*asked[2] <= free[2]
}

// sort sorts asks by job and index. Names are compared once for each job, not
// for each ask, and asks that come sorted are left alone.
func (p *pass) sort(level []entry) {
	if slices.IsSortedFunc(level, func(a, b entry) int {
		if a.job == b.job {
			return cmp.Or(cmp.Compare(a.ask.Name.Index, b.ask.Name.Index), cmp.Compare(a.ask.Generation, b.ask.Generation))
		}
		return compareEntries(a, b)
	}) {
		return
	}
	var ids []int32
	rank := map[int32]int{}
	for _, e := range level {
		if _, ok := rank[e.job]; !ok {
			rank[e.job] = 0
			ids = append(ids, e.job)
		}
	}
	jobs := &p.snapshot.jobs
	slices.SortFunc(ids, func(a, b int32) int { return jobs.At(a).name.Compare(jobs.At(b).name) })
	for i, id := range ids {
		rank[id] = i
	}
	slices.SortFunc(level, func(a, b entry) int {
		if a.job != b.job {
			return cmp.Compare(rank[a.job], rank[b.job])
		}
		return cmp.Or(cmp.Compare(a.ask.Name.Index, b.ask.Name.Index), cmp.Compare(a.ask.Generation, b.ask.Generation))
	})
}

// decideWaiters decides the asks of tasks that come back or have waited long and returns the others.
func (p *pass) decideWaiters(level []entry) []entry {
	after := p.snapshot.reserveAfter()
	first := func(e entry) bool { return e.ask.Back || after >= 0 && e.ask.Waited >= after }
	if !slices.ContainsFunc(level, first) {
		return level
	}
	var waiters, others []entry
	for _, e := range level {
		if first(e) {
			waiters = append(waiters, e)
		} else {
			others = append(others, e)
		}
	}
	slices.SortFunc(waiters, compareWaiters)
	p.decideInTurn(waiters)
	return others
}

// decide decides one ask.
func (p *pass) decide(e entry) {
	s, a := p.snapshot, e.ask
	if a.gathers() && !e.evicted {
		restore := p.liftHolds(p.gangs[crowdOf(a)])
		defer restore()
		p.together(e)
		return
	}
	if a.Claims && !e.evicted {
		p.besideClaim(e)
		return
	}
	if len(s.holds) > 0 && s.claims.Len() > 0 {
		restore := p.liftHolds([]Ask{*a})
		defer restore()
	}
	p.releaseOwn(e)
	p.returned(e)
	p.out = append(p.out, Decision{Name: a.Name, Evicted: e.evicted})
	d := &p.out[len(p.out)-1]
	d.Why.Machines = s.slots.Len()
	c := p.ready(a, e.job)
	c.waiting--
	switch {
	case c.inSet:
		p.decideInSet(c, a, e.job, d)
	case c.ask.On != "":
		p.decideOn(c, a, e.job, d)
	default:
		p.decideAnywhere(c, a, e.job, d)
	}
}

// besideClaim places an ask that has a claim where it has room now, if anywhere. One whose claim has
// been evicted in this pass asks by that.
func (p *pass) besideClaim(e entry) {
	s, a := p.snapshot, e.ask
	id, has := s.claims.Get(together(e.job, int32(a.Name.Index)))
	if !has {
		return
	}
	claim := *s.tasks.At(id)
	s.release(e.job, a.Name.Index) // it is none of its own job's tasks elsewhere
	p.out = append(p.out, Decision{Name: a.Name})
	d := &p.out[len(p.out)-1]
	d.Why.Machines = s.slots.Len()
	c := p.ready(a, e.job)
	c.waiting--
	if c.lone && p.placeLone(c, a, e.job, d) || !c.lone && p.takeBest(c, a, e.job, d) {
		return
	}
	s.holdClaim(claim)
}

// liftHolds lets asks go back to the machines on which they ran until now, see Snapshot.ClaimBack, for
// whatever these are held: until restore is called.
func (p *pass) liftHolds(asks []Ask) (restore func()) {
	s := p.snapshot
	was := map[int32]int16{}
	for i := 0; i < len(asks) && len(s.holds) > 0; i++ {
		id, has := s.claims.Get(together(s.jobID(asks[i].Name.JobName), int32(asks[i].Name.Index)))
		if !has || !s.tasks.At(id).back {
			continue
		}
		slot := s.tasks.At(id).slot
		if at := s.rows.At(slot).heldAt; at >= 0 {
			was[slot] = at
			s.rows.Edit(slot).heldAt = -1
			s.shade(slot)
		}
	}
	return func() {
		for slot, at := range was {
			s.rows.Edit(slot).heldAt = at
			s.shade(slot)
		}
	}
}

// returned says that an ask does not wait any more for the machine that it ran on last.
func (p *pass) returned(e entry) {
	if slot, ok := p.snapshot.slots.Get(e.ask.Last); ok {
		at := slices.Index(p.returning[e.job], slot)
		p.returning[e.job] = slices.Delete(p.returning[e.job], at, at+1)
	}
}

// takeOver does what was decided on a fork. Victims that have asked again there are among
// the decisions.
func (p *pass) takeOver(decisions []Decision, asked map[schema.TaskName]*Ask) {
	s := p.snapshot
	for i := range decisions {
		d := &decisions[i]
		p.out = append(p.out, *d)
		slot, ok := s.slots.Get(d.Machine)
		if !ok {
			continue
		}
		for _, id := range s.victimsOf(d, slot) {
			t := s.tasks.At(id)
			if s.victim(t); t.ask != nil {
				again := t.again(s)
				asked[again.Name] = &again
			}
		}
		s.carryOut(asked[d.Name], d)
	}
}

// ready returns the class of an ask, brought up to date.
func (p *pass) ready(a *Ask, job int32) *class {
	s := p.snapshot
	if a.On != "" {
		c := s.newClass(a, "")
		c.job = -1
		if p.social(job) {
			c.job = job
		}
		return c
	}
	c := p.classOf(a, job)
	if s.options.NoCache && c != p.last {
		c.epoch = -1
	}
	p.last = c
	if c.pass != s.passes {
		p.classes = append(p.classes, c)
	}
	if c.inSet {
		c.pass = s.passes
		return c
	}
	if c.pass != s.passes {
		s.weighOpening(c)
		c.pass = s.passes
		c.waiting = int(p.asked[job])
		c.lone = c.Score == nil && c.job < 0 && !s.options.NoRelaxed
		if !c.lone {
			s.update(c)
		}
	} else if c.lone {
		c.lone = false
		s.update(c)
	} else if c.whole() || c.removals != s.removals || s.stale(c, c.epoch, c.position) || c.kin != nil && c.flips != s.kindred.flipNow() {
		s.update(c)
	} else if !s.followSkew(c) {
		s.examine(c)
	}
	return c
}

// decideAnywhere decides an ask that any machine may take.
func (p *pass) decideAnywhere(c *class, a *Ask, job int32, d *Decision) {
	s := p.snapshot
	if slot, ok := p.keeps(c, a); ok {
		d.Why.Examined, d.Why.Feasible = c.examined, max(s.feasibleNow(c), 1)
		d.Why.Score = s.scoreOf(c, slot)
		p.commit(c, a, job, slot, d)
		return
	}
	if c.lone && p.placeLone(c, a, job, d) || !c.lone && p.takeBest(c, a, job, d) {
		return
	}
	if s.options.Preempt && p.preempt(c, a, job, d) {
		return
	}
	s.explain(c, &d.Why)
	p.hold(c, a, d)
}

// placeLone places a lone ask without caching the scores. A class that had
// no room before is first asked of the machines that changed since.
func (p *pass) placeLone(c *class, a *Ask, job int32, d *Decision) bool {
	s := p.snapshot
	if c.refusal.by != nil || p.tight {
		if p.tight = s.refuse(c) == 0; p.tight {
			return false
		}
	}
	first, second := s.bestForLone(c)
	if first < 0 {
		p.tight = true
		return false
	}
	d.Why.Examined, d.Why.Feasible = c.examined, c.feasible
	d.Why.Score = s.scoreOf(c, first)
	if second >= 0 {
		d.Why.RunnerUp = s.scoreOf(c, second)
	}
	p.commit(c, a, job, first, d)
	return true
}

// takeBest puts the task on the best of the class's candidates.
func (p *pass) takeBest(c *class, a *Ask, job int32, d *Decision) bool {
	s := p.snapshot
	first, second := s.top(c)
	// A pool that is used up is filled again, unless it is known of every
	// machine that there is no room.
	if first < 0 && (c.refusal.by == nil && !c.all || s.refuse(c) > 0) || first >= 0 && s.mayBeWanted(c, c.slots[first]) {
		s.examine(c)
		first, second = s.top(c)
	}
	if first < 0 {
		return false
	}
	slot := c.slots[first]
	d.Why.Examined, d.Why.Feasible = c.examined, s.feasibleNow(c)
	d.Why.Score = s.scoreOf(c, slot)
	if second >= 0 {
		d.Why.RunnerUp = s.scoreOf(c, c.slots[second])
	}
	p.commit(c, a, job, slot, d)
	s.rescore(c, first)
	return true
}

// enoughTried is how many stale candidates are scored again for one ask.
const enoughTried = 4

// top returns the best candidates. A pool of some machines may hold scores of
// machines that changed since: those found on top are scored again, until the
// best is true or enough were tried, of which the best is taken then. Changes
// of others are left until the next pass.
func (s *Snapshot) top(c *class) (first, second int32) {
	tried := int32(-1)
	var best tournament.Rank
	for n := 0; ; n++ {
		first, second = c.Best(s.openDomains(c))
		if first < 0 || c.seen[first] == s.rows.At(c.slots[first]).version {
			break
		}
		if n >= enoughTried && tried >= 0 {
			first, second = tried, -1
			break
		}
		s.rescore(c, first)
		if c.Score[first] > tournament.Infeasible {
			if r := c.RankAs(first); tried < 0 || r.Before(best) {
				tried, best = first, r
			}
		}
	}
	if second >= 0 && c.seen[second] != s.rows.At(c.slots[second]).version && s.check(c, c.slots[second]) != fine {
		second = -1
	}
	return first, second
}

// commit puts a task on a machine that has room.
func (p *pass) commit(c *class, a *Ask, job, slot int32, d *Decision) {
	s := p.snapshot
	n := s.nodes.At(slot)
	d.Machine = n.Name
	if len(a.Ports) > 0 {
		d.Ports = s.choosePorts(c, a, slot, p.seed)
	}
	if c.needs != nil {
		devices := a.pick(c.needs, n.Name, n.devices)
		d.Devices = usesOf(n.Devices, devices)
	}
	stale := c.bounds != nil && s.stale(c, c.epoch, c.position)
	s.put(c, a, job, slot, d)
	if c.job >= 0 && !stale && !s.filled(c, slot) {
		c.changes = s.jobs.At(job).changes
	}
}

// put has a machine hold the task of an ask, with what was chosen for it.
func (s *Snapshot) put(c *class, a *Ask, job, slot int32, d *Decision) {
	h := task{
		taskKey: taskKey{job, int32(a.Name.Index), slot, a.Generation}, priority: c.priority,
		limit: c.limit, reserv: c.limit, inAlloc: -1, ask: c.ask, isAlloc: a.IsAlloc, placed: true, shared: c.shared, profile: s.profileOf(job, a.Relations), since: comesNow,
	}
	h.take(d.Ports, d.Devices)
	d.Behind = cmp.Or(s.goBehind(c, slot), d.Behind) // by the fork on which it was decided
	h.behind = d.Behind
	s.hold(h)
	s.touch(slot)
}

// filled reports whether a domain of the machine has as many of the job's
// tasks as it may, so that its other machines must be asked again.
func (s *Snapshot) filled(c *class, slot int32) bool {
	for _, b := range c.bounds {
		if !b.perMachine && s.tallyOf(c.job, b.column).N[b.column.At[slot]] >= b.most {
			return true
		}
	}
	return false
}
