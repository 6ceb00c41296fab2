package placement

import (
	"maps"
	"math"

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
	hit      map[int32]int // victims of this pass, by job
	// ganged is true once a task has gone in this pass whose job goes together: the rest of
	// that costs nothing any more.
	ganged bool
}

// fork returns what a fork begins with: no task has gone yet.
func (d *disruption) fork() disruption {
	return disruption{budgets: maps.Clone(d.budgets), budgetOf: d.budgetOf, bounded: d.bounded, hit: map[int32]int{}}
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

// victim describes a task that is evicted, and takes it off its job's budget.
func (s *Snapshot) victim(t *task) Victim {
	gone := 1
	if t.together {
		gone, s.ganged = gangs{}.size(s, t.job), true
	}
	s.hit[t.job]++
	v := Victim{Name: s.jobs.At(t.job).name.Task(int(t.index)), Generation: t.generation, Priority: schema.Priority(t.priority)}
	if left := s.budget(t.job); left != unbounded && !t.claim {
		s.budgets[t.job] = left - gone
	}
	return v
}

// gangs is how many tasks go when one does of a job whose tasks go together, as far as it was
// found out. It holds as long as no task changes.
type gangs map[int32]int

// size returns how many tasks of a job run. When one has gone in this pass the others go
// anyway: then it is 0.
func (g gangs) size(s *Snapshot, job int32) int {
	if s.hit[job] > 0 {
		return 0
	}
	n, known := g[job]
	if !known {
		for id := s.jobs.At(job).first; id >= 0; id = s.tasks.At(id).nextOfJob {
			if t := s.tasks.At(id); !t.stopping && !t.claim {
				n++
			}
		}
		g[job] = n
	}
	return n
}

// overruns counts the tasks that go with an eviction beyond the budgets of their
// jobs. A claim disrupts nobody.
func (s *Snapshot) overruns(victims []int32, g gangs) (n int16) {
	if s.budgetOf == nil {
		return 0
	}
	var taken map[int32]int // of jobs that have a budget
	take := func(t *task) {
		left := s.budget(t.job)
		if t.claim || left == unbounded {
			return
		}
		if taken == nil {
			taken = map[int32]int{}
		}
		first := taken[t.job] == 0
		switch taken[t.job]++; {
		case t.together && first:
			size := g.size(s, t.job)
			n += int16(min(size-min(max(left, 0), size), math.MaxInt16))
		case !t.together && taken[t.job] > left:
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
	return n
}
