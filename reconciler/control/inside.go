package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// Which alloc of its set a task runs in: the one that it belongs in, for which it waits
// while that is on its way back. The tasks of a job that belong in no certain one are
// shared out: for a while they wait for allocs on their way back rather than fill
// the others. What stands elsewhere all the same is moved, see rebalancer.

// away says what keeps tasks from being put into an alloc that is to be there, ""
// if nothing does: what is on its way back is waited for.
func (s *scheduler) away(alloc schema.TaskName) string {
	why, pending := s.Away(alloc)
	if !pending {
		return why
	}
	if claim, ok := s.claims[alloc]; ok {
		return why + ": " + claim.String()
	}
	if w, ok := s.why[alloc]; ok {
		return why + ": " + w.String()
	}
	return why + ": not decided upon yet"
}

// placeInside gives the asks of tasks that run in allocs their places: first those
// that belong in a certain alloc, so that others do not take its room.
func (s *scheduler) placeInside(asks []snapshot.Ask) {
	var own, others []placement.Ask
	for _, a := range asks {
		p := s.placement(a)
		p.Back = ranInside(s.Task(a.Task))
		alloc, ok := s.OwnAlloc(a.Task)
		if !ok || p.AllocSet != alloc.JobName {
			p.AllocMax = s.shareOf(a, p.Waited)
			others = append(others, p)
			continue
		}
		if why := s.away(alloc); why != "" {
			s.why[a.Task] = placement.Why{Waits: fmt.Sprintf("waits for alloc %s, %s", alloc.Short(), why)}
			continue
		}
		p.Alloc = alloc
		own = append(own, p)
	}
	for _, refused := range s.decide(own) {
		p := *refused
		if s.makesRoom(p) {
			s.why[p.Name] = placement.Why{Waits: fmt.Sprintf("waits for tasks that leave alloc %s", p.Alloc.Short())}
			continue
		}
		p.Alloc = schema.TaskName{} // better elsewhere than not at all
		others = append(others, p)
	}
	for _, p := range s.decide(others) {
		if hasReason(s.why[p.Name], placement.ReasonShare) {
			alloc, why := s.firstAway(p.AllocSet)
			s.why[p.Name] = placement.Why{Waits: fmt.Sprintf("waits a minute for alloc %s, %s; the others have their share", alloc.Short(), why)}
		}
	}
}

// keepInside keeps what tasks that come back into their allocs had of the machine itself, numbers of ports and devices, from those
// that run in none and are decided before.
func (s *scheduler) keepInside() {
	var asks []placement.Ask
	from := map[schema.TaskName]string{}
	for _, a := range s.open(true) {
		r := &a.Job.Task.Resources
		if t := s.Task(a.Task); len(r.PortNumbers)+len(r.Devices)+len(r.FirstOf) > 0 && ranInside(t) {
			from[a.Task] = t.Causes[len(t.Causes)-1].Machine
			asks = append(asks, s.placement(a))
		}
	}
	s.cell.Snapshot().ClaimBack(asks, func(task schema.TaskName) string { return from[task] })
}

// ranInside reports whether a task, which may be nil, ran in an alloc until it, or that, was stopped to
// run again.
func ranInside(t *schema.TaskRecord) bool {
	if t == nil || len(t.Causes) == 0 {
		return false
	}
	last := &t.Causes[len(t.Causes)-1]
	return facts.RunsAgain(last) || last.Kind == schema.CauseAllocGone
}

func hasReason(w placement.Why, reason placement.Reason) bool {
	return slices.ContainsFunc(w.Refused, func(r placement.ReasonCount) bool { return r.Reason == reason })
}

// shareOf returns how many tasks of an ask's job one alloc may have, 0 for any
// number: while allocs are on their way back, and the task has not waited for long.
func (s *scheduler) shareOf(a snapshot.Ask, waited time.Duration) int {
	set, _ := s.Inside(a.Task.JobName)
	allocs := s.AllocsOf(set)
	if allocs == 0 || waited >= facts.AwaitAlloc {
		return 0
	}
	if _, why := s.firstAway(set); why == "" {
		return 0
	}
	s.bookCell(s.In(facts.AwaitAlloc - waited))
	return (s.Admitted(a.Task.JobName).Tasks + allocs - 1) / allocs
}

// firstAway returns the first alloc of a set that tasks cannot be put into, and why;
// "" if there is none.
func (s *scheduler) firstAway(set schema.JobName) (alloc schema.TaskName, why string) {
	for i := range s.AllocsOf(set) {
		if why := s.away(set.Task(i)); why != "" {
			return set.Task(i), why
		}
	}
	return alloc, ""
}

// makesRoom reports whether tasks that are on their way out of the only alloc that
// an ask wants make room for it there, and it is not to go elsewhere meanwhile: it has not
// waited for long, or they are stopping already, and have not been for long.
func (s *scheduler) makesRoom(p placement.Ask) bool {
	patient := p.Waited < facts.AwaitAlloc
	var leaving []snapshot.On
	for _, job := range s.InsideOf(p.Alloc.JobName) {
		for _, t := range s.Tasks(job) {
			if t.Machine == "" || t.Alloc == nil || t.Alloc.Of(job) != p.Alloc {
				continue
			}
			if own, ok := s.OwnAlloc(job.Task(t.Index)); s.stopsSoon(&t) || patient && (t.Stop != nil || ok && own != p.Alloc) {
				leaving = append(leaving, snapshot.On{Task: job.Task(t.Index), Machine: t.Machine})
			}
		}
	}
	if len(leaving) == 0 {
		return false
	}
	fork := s.cell.Without(leaving...)
	defer fork.Release()
	if !fork.Fits(p, false) {
		return false
	}
	if patient {
		s.bookCell(s.In(facts.AwaitAlloc - p.Waited))
	}
	return true
}

// stopsSoon reports whether a task is being stopped, and has not been for longer than one
// waits for an alloc.
func (s *scheduler) stopsSoon(t *schema.TaskRecord) bool {
	if t.Stop == nil {
		return false
	}
	soon, until := s.Waits(t.Stop.At.Add(facts.AwaitAlloc), facts.AwaitAlloc)
	s.bookCell(until)
	return soon
}
