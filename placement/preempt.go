package placement

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/schema"
)

// eviction is a set of tasks of one machine that make room for an ask.
type eviction struct {
	slot    int32
	victims []int32 // tasks
	cost    evictionCost
}

// evictionCost orders evictions; the least is chosen. The fields are compared
// in their order, which is the rule: lowest priority first, then fewest
// victims, then the lower sum of priorities, then the fewest disruptions
// beyond the budgets of their jobs, which so count last.
type evictionCost struct {
	highest  int16 // priority among the victims
	victims  int16
	sum      int32 // of their priorities
	overruns int16
}

func (a evictionCost) compare(b evictionCost) int {
	return cmp.Or(cmp.Compare(a.highest, b.highest), cmp.Compare(a.victims, b.victims),
		cmp.Compare(a.sum, b.sum), cmp.Compare(a.overruns, b.overruns))
}

// impossible is the level of a machine on which no eviction makes room.
const impossible = int16(-1)

// evictions is what a class could evict, machine by machine.
type evictions struct {
	epoch    int
	position int
	// level is the lowest priority up to which tasks must be evicted so that
	// there is room, by slot: the first term of the cost, without which the
	// others need not be known.
	level  []int16
	solved map[int32]eviction // of the current versions
}

// preempt makes room for an ask by evicting tasks of lower priority from the
// machine on which that costs the least, and asks for the victims again.
func (p *pass) preempt(c *class, a *Ask, job int32, d *Decision) bool {
	s := p.snapshot
	s.levels(c)
	e := &c.evict
	low := int16(0)
	var at []int32
	for slot, l := range e.level {
		switch {
		case l == impossible:
		case at == nil || l < low:
			low, at = l, append(at[:0], int32(slot))
		case l == low:
			at = append(at, int32(slot))
		}
	}
	if len(at) == 0 {
		return false
	}
	slices.SortFunc(at, s.compareSlots)
	if most := s.evictionsEnough(); len(at) > most {
		// Relaxed: machines in random order, from a start that is the class's.
		from := int(c.id % uint64(len(at)))
		at = append(at[from:len(at):len(at)], at[:from]...)[:most]
		slices.SortFunc(at, s.compareSlots)
	}
	best := eviction{slot: -1}
	for _, slot := range at {
		plan, ok := e.solved[slot]
		if !ok || len(s.budgets) > 0 { // a budget may have shrunk elsewhere
			plan, ok = s.solve(c, slot)
			if !ok {
				e.level[slot] = impossible
				continue
			}
			e.solved[slot] = plan
		}
		if best.slot < 0 || plan.cost.compare(best.cost) < 0 {
			best = plan
		}
	}
	if best.slot < 0 {
		return p.preempt(c, a, job, d) // all of that level proved impossible
	}
	p.evict(c, a, job, best, d)
	return true
}

// evictionsEnough is how many machines of the lowest level are solved.
func (s *Snapshot) evictionsEnough() int {
	if s.options.NoRelaxed {
		return len(s.nodes)
	}
	return max(s.options.Enough, 64)
}

// levels brings the levels of a class up to date.
func (s *Snapshot) levels(c *class) {
	e := &c.evict
	if len(e.level) != len(s.nodes) || s.stale(c, e.epoch, e.position) {
		e.level = make([]int16, len(s.nodes))
		e.solved = map[int32]eviction{}
		for slot := range s.nodes {
			e.level[slot] = s.level(c, int32(slot))
		}
	} else {
		for _, slot := range s.log[e.position-s.trimmed:] {
			e.level[slot] = s.level(c, slot)
			delete(e.solved, slot)
		}
	}
	e.epoch, e.position = s.epoch, s.now()
}

// mayEvict reports whether a task can be a victim of the class: of lower
// priority, not prod for prod, not leaving anyway, and not inside an alloc,
// which is evicted whole or not at all.
func (s *Snapshot) mayEvict(c *class, t *task) bool {
	return t.priority < c.priority && !t.stopping && t.inAlloc < 0 &&
		!(c.prod && schema.Priority(t.priority).Prod())
}

// level returns the lowest priority up to which tasks must be evicted.
func (s *Snapshot) level(c *class, slot int32) int16 {
	if s.state[slot] != stateUp || s.heldAt[slot] >= c.priority || s.admits(c, slot) != fine {
		return impossible
	}
	var room [64]int32
	list := s.evictable(c, slot, room[:0])
	lack, ports := s.deficit(c, slot)
	devices := c.needs != nil
	var after []device
	if devices {
		after = slices.Clone(s.nodes[slot].devices)
	}
	level := int16(0)
	for i := 0; ; i++ {
		enough := lack[0] <= 0 && lack[1] <= 0 && lack[2] <= 0 && ports <= 0
		if enough && devices {
			_, enough = pick(after, c.needs, nil)
		}
		if enough {
			return level
		}
		if i == len(list) {
			return impossible
		}
		t := &s.tasks[list[i]]
		level = t.priority
		gain := s.gain(c, t)
		for d := range dims {
			lack[d] -= gain[d]
		}
		ports -= s.portGain(t)
		giveDevices(after, t.devices)
	}
}

// evictable appends the tasks that the class may evict, lowest priority first.
func (s *Snapshot) evictable(c *class, slot int32, list []int32) []int32 {
	for id := s.nodes[slot].first; id >= 0; id = s.tasks[id].nextHere {
		if s.mayEvict(c, &s.tasks[id]) && s.insidersMayGo(c, id) {
			list = append(list, id)
		}
	}
	slices.SortFunc(list, s.compareVictims)
	return list
}

// insidersMayGo reports whether all tasks inside an alloc could be evicted
// with it.
func (s *Snapshot) insidersMayGo(c *class, id int32) bool {
	if !s.tasks[id].isAlloc {
		return true
	}
	for t := s.nodes[s.tasks[id].slot].first; t >= 0; t = s.tasks[t].nextHere {
		h := &s.tasks[t]
		if h.inAlloc == id && (h.priority >= c.priority || c.prod && schema.Priority(h.priority).Prod()) {
			return false
		}
	}
	return true
}

// compareVictims orders tasks by priority, and then in any order that is
// always the same.
func (s *Snapshot) compareVictims(a, b int32) int {
	t, u := &s.tasks[a], &s.tasks[b]
	if r := cmp.Compare(t.priority, u.priority); r != 0 {
		return r
	}
	if t.job != u.job {
		return s.jobs[t.job].name.Compare(s.jobs[u.job].name)
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
	r := s.nodes[t.slot].Ports
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
	free := s.free(c)
	for d := range dims {
		lack[d] = c.limit[d] - free[d][slot]
	}
	return lack, int(c.ports - s.ports[slot])
}

func giveDevices(devices []device, uses []deviceUse) {
	for _, u := range uses {
		if int(u.index) < len(devices) {
			devices[u.index].free += u.milli
		}
	}
}

// evict carries out an eviction: the victims go, the task takes their place,
// and the victims ask again.
func (p *pass) evict(c *class, a *Ask, job int32, plan eviction, d *Decision) {
	s := p.snapshot
	for _, id := range plan.victims {
		for t := s.nodes[plan.slot].first; s.tasks[id].isAlloc && t >= 0; {
			next := s.tasks[t].nextHere
			if s.tasks[t].inAlloc == id {
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
	t := s.tasks[id]
	name := s.jobs[t.job].name.Task(int(t.index))
	d.Victims = append(d.Victims, Victim{Name: name, Generation: t.generation, Priority: schema.Priority(t.priority)})
	if left, ok := s.budgets[t.job]; ok {
		s.budgets[t.job] = left - 1
	}
	s.drop(id)
	if t.ask == nil {
		return
	}
	again := *t.ask
	again.Name, again.Generation, again.Priority, again.Prefer = name, t.generation, schema.Priority(t.priority), ""
	p.asked[t.job]++
	p.levels[again.Priority] = append(p.levels[again.Priority], entry{ask: &again, job: t.job, evicted: true})
}
