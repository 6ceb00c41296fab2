package control

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// coming is which tasks are on their way to machines, as a step finds it out that begins now: for
// answers about what steps do, which take none.
type coming struct {
	*facts.Facts
	stops stops
	from  string                     // a machine that a task is being moved from, "" for none
	first map[string]schema.TaskName // one that counts for emptying, by the machine that it has a claim on
}

// comingTo looks at all tasks of a cell.
func comingTo(f *facts.Facts) coming {
	s := coming{f, stops{preempted: map[string][]snapshot.On{}}, "", map[string]schema.TaskName{}}
	for _, name := range f.ChunkNames() {
		list := f.Chunk(name).Tasks
		for i := range list {
			t, task := &list[i], name.Job.Task(list[i].Index)
			s.stops.leaves(task, t, false)
			if to := movesTo(t); to != "" && t.Done == nil {
				s.stops.moves = append(s.stops.moves, snapshot.On{Task: task, Machine: to})
			}
			if s.from == "" && t.Stop != nil && t.Stop.Kind == schema.CauseRebalance {
				s.from = t.Machine
			}
		}
	}
	return s
}

// claim holds room in the snapshot for the tasks that wait until others have left a machine, those
// of higher priority first, and then for those that move, as the scheduler does.
func (s *coming) claim(cell *snapshot.Cell, claims map[schema.TaskName]Claim) {
	priority := func(task schema.TaskName) (p schema.Priority) {
		if job := s.Admitted(task.JobName); job != nil {
			p = job.Priority
		}
		return p
	}
	waiting := slices.SortedFunc(maps.Keys(claims), func(a, b schema.TaskName) int {
		return cmp.Or(cmp.Compare(priority(b), priority(a)), a.Compare(b))
	})
	for _, task := range waiting {
		s.hold(cell, snapshot.On{Task: task, Machine: claims[task].Machine})
	}
	for _, to := range s.stops.moves {
		if _, waits := claims[to.Task]; !waits {
			s.hold(cell, to)
		}
	}
}

// hold holds room for one task, with what those leave that were stopped for it.
func (s *coming) hold(cell *snapshot.Cell, to snapshot.On) {
	job, r := s.Admitted(to.Task.JobName), s.Job(to.Task.JobName)
	if job == nil || r == nil {
		return
	}
	var leaving []placement.Victim
	for _, l := range s.stops.preempted[to.Task.Short()] {
		if l.Machine == to.Machine {
			leaving = append(leaving, placement.Victim{Name: l.Task})
		}
	}
	a, _ := cell.Placement(snapshot.Ask{Task: to.Task, Job: job, Data: r.Admitted})
	if _, has := s.first[to.Machine]; cell.Claim(&a, to.Machine, leaving) && !has && job.Kind != schema.System {
		s.first[to.Machine] = to.Task
	}
}
