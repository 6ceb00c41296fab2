package control

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// Misplaced is that a task runs in another alloc than it belongs in.
type Misplaced struct {
	Alloc schema.TaskName // that it belongs in
	// Due says that it is moved there: at once, or when what Text says is over.
	Due  bool
	Text string
}

// rebalancer moves tasks into the allocs that they belong in.
type rebalancer struct {
	pass
	cell      *snapshot.Cell
	activity  *activity
	budget    disruption
	away      func(alloc schema.TaskName) string // see scheduler.away
	misplaced map[schema.TaskName]Misplaced
}

// all moves tasks into the allocs that they belong in, one at a time of a
// set. Sets of which nothing has changed are not looked at.
func (s *rebalancer) all(active []schema.JobName) {
	done := map[schema.JobName]bool{}
	for _, name := range active {
		if s.Job(name) == nil {
			continue
		}
		set := name
		if host, inside := s.Inside(name); inside {
			set = host
		}
		if !done[set] && s.AllocsOf(set) > 0 {
			done[set] = true
			s.rebalanceSet(set)
		}
	}
}

// rebalanceSet moves a task of a set that is not where it belongs.
func (s *rebalancer) rebalanceSet(set schema.JobName) {
	busy, until := s.Unsettled(set)
	s.bookCell(until)
	r := rebalancing{set: set, busy: busy}
	for _, job := range s.InsideOf(set) {
		want := s.Admitted(job)
		if want.Kind != schema.Service { // what a batch task has done would be lost
			continue
		}
		if want.Tasks != s.AllocsOf(set) {
			if t, alloc, ok := s.excess(set, job); ok {
				s.moveIn(&r, job, t, alloc)
			}
			continue
		}
		for _, t := range s.Tasks(job) {
			if alloc := set.Task(t.Index); t.Index < want.Tasks && s.Movable(set, job, &t) && t.Alloc.Index != t.Index {
				s.moveIn(&r, job, t, alloc)
			}
		}
	}
}

// rebalancing is one step's work on one set.
type rebalancing struct {
	set  schema.JobName
	busy string // why nothing is moved now
}

// excess returns a task of a job in the alloc that has the most of its tasks, and
// the alloc that it belongs in: one that has two fewer at least, and room for it. A job
// for which there is only no room is not idle: what gives room, such as a port of the
// machine, may be no task of the set.
func (s *rebalancer) excess(set, job schema.JobName) (t schema.TaskRecord, alloc schema.TaskName, ok bool) {
	in := make([][]schema.TaskRecord, s.AllocsOf(set))
	for _, t := range s.Tasks(job) {
		if s.Movable(set, job, &t) && t.Alloc.Index < len(in) {
			in[t.Alloc.Index] = append(in[t.Alloc.Index], t)
		}
	}
	var order []int // of allocs that are there, by how many they have
	for i := range in {
		if s.away(set.Task(i)) == "" {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(in[a]) - len(in[b]) })
	if len(order) == 0 {
		return t, alloc, false
	}
	most := in[order[len(order)-1]]
	for _, i := range order {
		if len(most)-len(in[i]) < 2 {
			break
		}
		t := most[len(most)-1]
		refused, until := s.cell.Refuses(job, &t, set.Task(i))
		if s.book(job, until); refused == "" {
			return t, set.Task(i), true
		}
		s.activity.keep(job)
	}
	return t, alloc, false
}

// moveIn has a task moved into the alloc that it belongs in, and says what that
// waits for. It has been where it is for a while, so that what changes again and
// again moves nothing again and again.
func (s *rebalancer) moveIn(r *rebalancing, job schema.JobName, t schema.TaskRecord, alloc schema.TaskName) {
	name, m := alloc.Short(), Misplaced{Alloc: alloc, Due: true}
	away := s.away(alloc)
	var refused placement.Reason
	var until facts.Until
	if away == "" {
		refused, until = s.cell.Refuses(job, &t, alloc)
	}
	at := t.At.Add(facts.AwaitAlloc)
	recent, settles := s.Waits(at, facts.AwaitAlloc)
	s.book(job, until.Or(settles))
	switch {
	case away != "":
		m.Due, m.Text = false, fmt.Sprintf("belongs in alloc %s, %s", name, away)
	case refused != "":
		m.Due, m.Text = false, fmt.Sprintf("belongs in alloc %s, which cannot take it: %s", name, refused)
	case recent:
		m.Text = fmt.Sprintf("belongs in alloc %s, and moves there at %s", name, s.Say(at))
	case r.busy != "":
		m.Text = fmt.Sprintf("belongs in alloc %s, and waits: %s", name, r.busy)
	default:
		kept := s.budget.rebalance(job, t, fmt.Sprintf("it belongs in alloc %s, which has room for it", name))
		if m.Text = fmt.Sprintf("belongs in alloc %s, and waits: %s", name, kept); kept == "" {
			r.busy = fmt.Sprintf("%s is stopping", job.Task(t.Index).Short())
			return
		}
	}
	s.activity.keep(job)
	if s.misplaced == nil {
		s.misplaced = map[schema.TaskName]Misplaced{}
	}
	s.misplaced[job.Task(t.Index)] = m
}
