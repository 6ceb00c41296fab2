package placement

import (
	"maps"
	"math"
	"slices"

	"github.com/musterhq/muster/schema"
)

// unbounded is the budget of a job that has none.
const unbounded = math.MaxInt

// disruption is what evictions of a pass disrupt, and may.
type disruption struct {
	budgets map[int32]int // by job, as far as they were asked for
	// budgetOf returns the budget of a job; nil for none. See SetBudgets.
	budgetOf func(schema.JobName) (int, bool)
	bounded  bool          // any job has one, as far as they were asked for
	hit      map[int32]int // victims of this pass, by party
	// hitBefore are the jobs of which SetHit says so, as far as they were asked for.
	hitBefore map[int32]bool
	wasHit    func(schema.JobName) bool
	// protected is of which jobs SetProtected says so, by number, as far as they were asked for.
	protected        []protected
	protectedOf      func(schema.JobName) bool
	protectedVersion int
	// heldFor are the machines that are held for asks of this pass.
	heldFor []heldFor
	// ganged is true once a task has gone in this pass with which others go: these
	// cost nothing any more.
	ganged bool
}

// fork returns what a fork begins with: no task has gone yet.
func (d *disruption) fork() disruption {
	return disruption{
		budgets: maps.Clone(d.budgets), budgetOf: d.budgetOf, bounded: d.bounded, hit: map[int32]int{}, hitBefore: maps.Clone(d.hitBefore), wasHit: d.wasHit,
		protectedOf: d.protectedOf, protectedVersion: d.protectedVersion, heldFor: slices.Clip(d.heldFor),
	}
}

// begin begins a pass.
func (d *disruption) begin() {
	clear(d.hit)
	d.ganged = false
}

// SetBudgets says how many tasks of a job may still be disrupted, and whether
// there is a bound at all. Tasks beyond it are evicted only where no others make
// room. It is asked once for each job whose tasks could go, during the passes that
// follow, in which budgets shrink with the evictions; nil for no budgets.
func (s *Snapshot) SetBudgets(left func(schema.JobName) (n int, bound bool)) {
	s.budgetOf, s.bounded = left, false
	clear(s.budgets)
}

// SetHit says which jobs have lost tasks to an eviction before that have not got another place
// yet: where that costs nothing more, others are hit. It is asked once for each job whose tasks
// could go, during the passes that follow; nil for none.
func (s *Snapshot) SetHit(was func(schema.JobName) bool) {
	s.wasHit = was
	s.hitBefore = map[int32]bool{}
}

// again counts the victims whose jobs are hit by more than one of them: in this pass, or before.
func (s *Snapshot) again(victims []int32) (n int16) {
	for i := range victims {
		if s.isFurther(victims, i) || s.lostBefore(s.tasks.At(victims[i]).job) {
			n++
		}
	}
	return n
}

// isFurther reports whether one of some victims is not the first of its party in this pass.
func (s *Snapshot) isFurther(victims []int32, i int) bool {
	party := s.tasks.At(victims[i]).party()
	return s.hit[party] > 0 || slices.ContainsFunc(victims[:i], func(o int32) bool { return s.tasks.At(o).party() == party })
}

// lostBefore reports whether a job has lost tasks before, see SetHit.
func (s *Snapshot) lostBefore(job int32) bool {
	if s.wasHit == nil {
		return false
	}
	was, known := s.hitBefore[job]
	if !known {
		was = s.wasHit(s.jobs.At(job).name)
		s.hitBefore[job] = was
	}
	return was
}

// budget returns how many tasks of a job may still be disrupted.
func (s *Snapshot) budget(job int32) int {
	if s.budgetOf == nil {
		return unbounded
	}
	n, known := s.budgets[job]
	if !known {
		n = unbounded
		if left, bound := s.budgetOf(s.jobs.At(job).name); bound {
			n, s.bounded = left, true
		}
		s.budgets[job] = n
	}
	return n
}

// party is what goes when a task is evicted: its gang, as a number below 0, or its job.
func (t *task) party() int32 {
	if t.gang != 0 {
		return -t.gang
	}
	return t.job
}

// takesOthers reports whether others go when a task is evicted.
func (t *task) takesOthers() bool { return t.together || t.gang != 0 }

// victim describes a task that is evicted, and takes it off its job's budget: with those that
// go with it.
func (s *Snapshot) victim(t *task) Victim {
	gone := []share{{t.job, 1}}
	if t.takesOthers() {
		gone, s.ganged = parties{}.of(s, t), true
	}
	s.hit[t.party()]++
	for _, x := range gone {
		if left := s.budget(x.job); left != unbounded && !t.claim {
			s.budgets[x.job] = left - x.tasks
		}
	}
	return Victim{Name: s.jobs.At(t.job).name.Task(int(t.index)), Generation: t.generation, Priority: schema.Priority(t.priority)}
}

// share is how many tasks of a job go with others.
type share struct {
	job   int32
	tasks int
}

// parties is how many tasks go, of which jobs, when one does whose job or gang goes together, as
// far as it was found out. It holds as long as no task changes.
type parties map[int32][]share

// of returns how many tasks run that go with one, itself included. When one has gone in this
// pass the others go anyway: then it is none.
func (g parties) of(s *Snapshot, t *task) []share {
	party := t.party()
	if s.hit[party] > 0 {
		return nil
	}
	list, known := g[party]
	if !known {
		jobs := []int32{t.job}
		if t.gang != 0 {
			jobs = *s.gangs.jobs.At(t.gang - 1)
		}
		for _, job := range jobs {
			if n := s.runningOf(job, t.gang); n > 0 {
				list = append(list, share{job, n})
			}
		}
		g[party] = list
	}
	return list
}

// runningOf returns how many tasks of a job run, in a gang or, with 0, in any or none.
func (s *Snapshot) runningOf(job, gang int32) (n int) {
	for id := s.jobs.At(job).first; id >= 0; id = s.tasks.At(id).nextOfJob {
		if t := s.tasks.At(id); !t.stopping && !t.claim && (gang == 0 || t.gang == gang) {
			n++
		}
	}
	return n
}

// size returns how many tasks go with one in all.
func (g parties) size(s *Snapshot, t *task) (n int) {
	for _, x := range g.of(s, t) {
		n += x.tasks
	}
	return n
}

// overruns counts the tasks that go with an eviction beyond the budgets of their
// jobs. A claim disrupts nobody.
func (s *Snapshot) overruns(victims []int32, g parties) int16 {
	if s.budgetOf == nil {
		return 0
	}
	n := 0
	var taken map[int32]int // by party, of those of which a job has a budget
	take := func(t *task) {
		if t.claim {
			return
		}
		if taken == nil {
			taken = map[int32]int{}
		}
		taken[t.party()]++
		switch {
		case t.takesOthers() && taken[t.party()] == 1:
			for _, x := range g.of(s, t) {
				n += x.tasks - min(max(s.budget(x.job), 0), x.tasks)
			}
		case !t.takesOthers() && taken[t.job] > s.budget(t.job):
			n++
		}
	}
	for _, id := range victims {
		t := s.tasks.At(id)
		take(t)
		for i := s.nodes.At(t.slot).first; t.isAlloc && i >= 0; i = s.tasks.At(i).nextHere {
			if s.tasks.At(i).inAlloc == id {
				take(s.tasks.At(i))
			}
		}
	}
	return int16(min(n, math.MaxInt16))
}

// protected is whether a job is protected, as far as it was asked for.
type protected uint8

const (
	notAsked protected = iota
	isNot
	isSo
)

// SetProtected says of which jobs no task is evicted, whatever the priority of the ask: of all jobs of
// a gang, or of none. An alloc stays while such a task is inside. What is claimed may be given to
// others all the same: nothing runs there. So may what runs where another ask waits for room, see
// Task.Behind. It is asked once for each job whose tasks could go, during
// the passes that follow, and not again while version is the same; nil for none.
func (s *Snapshot) SetProtected(version int, is func(schema.JobName) bool) {
	if s.protectedOf = is; is == nil || s.protectedVersion != version {
		s.protected = s.protected[:0]
	}
	s.protectedVersion = version
}

// isProtected reports whether no task of a job is evicted.
func (s *Snapshot) isProtected(job int32) bool {
	switch {
	case s.protectedOf == nil:
		return false
	case int(job) < len(s.protected) && s.protected[job] != notAsked:
		return s.protected[job] == isSo
	}
	return s.askProtected(job)
}

// heldFor is a machine that is held for an ask, or for what goes together.
type heldFor struct {
	slot   int32
	ask    schema.TaskName
	holder string // see holderOf
	since  int64  // when the ask began to wait, see sinceOf: what came before did not come behind it
}

// holderOf names what machines are held for by an ask: itself, or what it goes together with.
func holderOf(a *Ask) string {
	switch {
	case a.Gang != nil:
		return "gang " + a.Name.User + "/" + a.Gang.Name
	case a.Together > 0:
		return a.Name.JobName.Short()
	}
	return a.Name.Short()
}

// noteHeld takes down which machine is held for an ask of the pass.
func (s *Snapshot) noteHeld(a *Ask) {
	if slot, ok := s.slots.Get(a.Held); ok {
		h := heldFor{slot: slot, ask: a.Name, holder: holderOf(a)}
		if !s.time.IsZero() {
			h.since = sinceOf(s.time.Add(-a.Waited))
		}
		s.heldFor = append(s.heldFor, h)
	}
}

// yieldedBy names for what an ask has machines held, if tasks are there that came behind it; "" if none are.
func (s *Snapshot) yieldedBy(a *Ask) string {
	own := -1
	if a.Held != "" {
		own = slices.IndexFunc(s.heldFor, func(h heldFor) bool { return h.ask == a.Name })
	}
	if own < 0 {
		return ""
	}
	holder := s.heldFor[own].holder // of those that it goes together with, as the pass has it
	for _, h := range s.heldFor {
		for id := s.nodes.At(h.slot).first; h.holder == holder && id >= 0; id = s.tasks.At(id).nextHere {
			if t := s.tasks.At(id); t.behind == holder && t.since >= h.since {
				return holder
			}
		}
	}
	return ""
}

// yieldsTo reports whether a task was put on a machine that is held for the ask of a class, on
// condition that it goes when that has room: what has come to be protected since does, or has come to be
// of the same priority. A task that takes others along does not, which may be on other machines, nor one that would
// preempt the ask in turn.
func (s *Snapshot) yieldsTo(c *class, t *task) bool {
	return t.behind != "" && t.behind == c.holder && !t.takesOthers() && t.priority <= c.priority && c.priority >= int16(schema.Priority(t.priority).PreemptsBelow()) &&
		slices.ContainsFunc(s.heldFor, func(h heldFor) bool { return h.slot == t.slot && h.holder == t.behind && t.since >= h.since })
}

// protects reports whether a task is protected from a class. What is only claimed is not, but for a
// task that ran until now.
func (s *Snapshot) protects(c *class, t *task) bool {
	return (!t.claim || t.back) && !c.ruthless && s.isProtected(t.job) && !s.yieldsTo(c, t)
}

// askProtected is isProtected of a job for which it was not asked yet.
func (s *Snapshot) askProtected(job int32) bool {
	for int(job) >= len(s.protected) {
		s.protected = append(s.protected, notAsked)
	}
	s.protected[job] = isNot
	if s.protectedOf(s.jobs.At(job).name) {
		s.protected[job] = isSo
	}
	return s.protected[job] == isSo
}

// countProtected counts the tasks that keep an ask from a machine since they are protected: on those
// where there would be room if they were not.
func (s *Snapshot) countProtected(c *class) (n int) {
	if !s.options.Preempt || s.protectedOf == nil || c.inSet || !s.anyLower(c) {
		return 0
	}
	r := &c.refusal
	if r.protectedOn.passes == s.passes && r.protectedOn.position == s.now() {
		return r.protectedOn.tasks
	}
	for slot := range s.nodes.Len() {
		here := s.protectedOn(c, slot)
		if here == 0 {
			continue
		}
		c.ruthless = true
		if s.level(c, slot) != impossible {
			n += here
		}
		c.ruthless = false
	}
	r.protectedOn = protectedOn{s.passes, s.now(), n}
	return n
}

// protectedOn is what countProtected found, in a pass and at a position in the log.
type protectedOn struct{ passes, position, tasks int }

// protectedOn counts the tasks of a machine that are protected and of a priority which a class may evict.
func (s *Snapshot) protectedOn(c *class, slot int32) (n int) {
	for id := s.nodes.At(slot).first; id >= 0; id = s.tasks.At(id).nextHere {
		if t := s.tasks.At(id); t.priority < c.below && !t.stopping && !t.claim && s.isProtected(t.job) && !s.yieldsTo(c, t) {
			n++
		}
	}
	return n
}
