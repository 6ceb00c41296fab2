package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Which alloc of its set a task runs in. A job with as many tasks as its set has
// allocs has one in each: task i in alloc i, which it waits for while that is on its
// way back. The tasks of any other job are shared out: for a while they wait for
// allocs on their way back rather than crowd into the others. What stands elsewhere
// all the same is moved, see rebalanceAll.

// awaitAlloc is how long a task is not put where it would have to be moved away from
// once an alloc is back, and how long one is left where it is after it was put there.
const awaitAlloc = time.Minute

// ownAlloc returns the alloc that a task belongs in, if it belongs in a certain one.
func (s *step) ownAlloc(task schema.TaskName) (alloc schema.TaskName, ok bool) {
	set, inside := s.inside(task.JobName)
	if !inside {
		return schema.TaskName{}, false
	}
	tasks, allocs := s.dataOf(s.job(task.JobName).Admitted).Tasks, s.allocsOf(set)
	return set.Task(task.Index), tasks == allocs && task.Index < allocs
}

// allocsOf returns how many allocs a set shall have.
func (s *step) allocsOf(set schema.JobName) int {
	r := s.job(set)
	if r == nil || r.Admitted == "" || s.dataOf(r.Admitted).Kind != schema.Allocs {
		return 0
	}
	return s.dataOf(r.Admitted).Tasks
}

// insideOf returns the jobs whose tasks run in a set, sorted. Jobs are admitted by
// then.
func (s *step) insideOf(set schema.JobName) []schema.JobName {
	if s.users == nil {
		s.users = map[schema.JobName][]schema.JobName{}
		for _, name := range s.allJobs() {
			if host, inside := s.inside(name); inside {
				s.users[host] = append(s.users[host], name)
			}
		}
	}
	return s.users[set]
}

// away says what keeps tasks from being put into an alloc that is to be there, ""
// if nothing does: what is on its way back is waited for.
func (s *step) away(alloc schema.TaskName) string {
	t := s.recordOf(alloc)
	switch {
	case t == nil:
	case t.Stop != nil:
		return "which is stopping: " + t.Stop.String()
	case t.Machine != "" && s.isUp(t.Machine):
		return ""
	case t.Machine != "":
		return fmt.Sprintf("whose machine %s is silent", t.Machine)
	case Ahead(s.now, t.NotBefore, RetryCap):
		return fmt.Sprintf("which is retried in %s", t.NotBefore.Sub(s.now).Round(time.Second))
	}
	why := "not decided upon yet"
	if claim, ok := s.out.Claims[alloc]; ok {
		why = claim.String()
	} else if w, ok := s.out.Why[alloc]; ok {
		why = w.String()
	}
	return "which is pending: " + why
}

// placeInside gives the asks of tasks that run in allocs their places: first those
// that belong in a certain alloc, so that others do not take its room.
func (s *step) placeInside(asks []ask) {
	var own, others []placement.Ask
	for _, a := range asks {
		p := s.placementAsk(a)
		alloc, ok := s.ownAlloc(a.task)
		if !ok || p.AllocSet != alloc.JobName {
			p.AllocMax = s.shareOf(a, p.Waited)
			others = append(others, p)
			continue
		}
		if why := s.away(alloc); why != "" {
			s.out.Why[a.task] = placement.Why{Waits: fmt.Sprintf("waits for alloc %s, %s", alloc.Short(), why)}
			continue
		}
		p.Alloc = alloc
		own = append(own, p)
	}
	for _, p := range s.decide(own) {
		if s.makesRoom(p) {
			s.out.Why[p.Name] = placement.Why{Waits: fmt.Sprintf("waits for tasks that leave alloc %s", p.Alloc.Short())}
			continue
		}
		p.Alloc = schema.TaskName{} // better elsewhere than not at all
		others = append(others, p)
	}
	for _, p := range s.decide(others) {
		if hasReason(s.out.Why[p.Name], placement.ReasonShare) {
			alloc, why := s.firstAway(p.AllocSet)
			s.out.Why[p.Name] = placement.Why{Waits: fmt.Sprintf("waits a minute for alloc %s, %s; the others have their share", alloc.Short(), why)}
		}
	}
}

func hasReason(w placement.Why, reason placement.Reason) bool {
	return slices.ContainsFunc(w.Refused, func(r placement.ReasonCount) bool { return r.Reason == reason })
}

// shareOf returns how many tasks of an ask's job one alloc may have, 0 for any
// number: while allocs are on their way back, and the task has not waited for long.
func (s *step) shareOf(a ask, waited time.Duration) int {
	set, _ := s.inside(a.task.JobName)
	allocs := s.allocsOf(set)
	if allocs == 0 || waited >= awaitAlloc {
		return 0
	}
	if _, why := s.firstAway(set); why == "" {
		return 0
	}
	s.wake(s.now.Add(awaitAlloc - waited))
	return (s.dataOf(s.job(a.task.JobName).Admitted).Tasks + allocs - 1) / allocs
}

// firstAway returns the first alloc of a set that tasks cannot be put into, and why;
// "" if there is none.
func (s *step) firstAway(set schema.JobName) (alloc schema.TaskName, why string) {
	for i := range s.allocsOf(set) {
		if why := s.away(set.Task(i)); why != "" {
			return set.Task(i), why
		}
	}
	return alloc, ""
}

// makesRoom reports whether tasks that are on their way out of the only alloc that
// an ask wants make room for it there, and the ask has not waited for long.
func (s *step) makesRoom(p placement.Ask) bool {
	if p.Waited >= awaitAlloc {
		return false
	}
	var leaving []victim
	for _, job := range s.insideOf(p.Alloc.JobName) {
		for _, t := range s.tasks(job) {
			if t.Machine == "" || t.Alloc == nil || t.Alloc.Of(job) != p.Alloc {
				continue
			}
			if own, ok := s.ownAlloc(job.Task(t.Index)); t.Stop != nil || ok && own != p.Alloc {
				leaving = append(leaving, victim{job.Task(t.Index), t.Machine})
			}
		}
	}
	if len(leaving) == 0 {
		return false
	}
	fork := s.without(leaving...)
	defer fork.Release()
	if !fork.Fits(p, false) {
		return false
	}
	s.wake(s.now.Add(awaitAlloc - p.Waited))
	return true
}

// Misplaced is that a task runs in another alloc than it belongs in.
type Misplaced struct {
	Alloc schema.TaskName // that it belongs in
	// Due says that it is moved there: at once, or when what Text says is over.
	Due  bool
	Text string
}

// rebalanceAll moves tasks into the allocs that they belong in, one at a time of a
// set. Sets of which nothing has changed are not looked at.
func (s *step) rebalanceAll() {
	done := map[schema.JobName]bool{}
	for _, name := range s.active {
		if s.job(name) == nil {
			continue
		}
		set := name
		if host, inside := s.inside(name); inside {
			set = host
		}
		if !done[set] && s.allocsOf(set) > 0 {
			done[set] = true
			s.rebalanceSet(set)
		}
	}
	s.waking = schema.JobName{}
}

// rebalanceSet moves a task of a set that is not where it belongs.
func (s *step) rebalanceSet(set schema.JobName) {
	r := rebalancing{set: set, busy: s.unsettled(set)}
	for _, job := range s.insideOf(set) {
		want := s.dataOf(s.job(job).Admitted)
		if want.Kind != schema.Service { // what a batch task has done would be lost
			continue
		}
		s.waking = job
		if want.Tasks != s.allocsOf(set) {
			if t, alloc, ok := s.excess(set, job); ok {
				s.settleIn(&r, job, t, alloc)
			}
			continue
		}
		for _, t := range s.tasks(job) {
			if alloc := set.Task(t.Index); t.Index < want.Tasks && s.movable(set, job, &t) && t.Alloc.Index != t.Index {
				s.settleIn(&r, job, t, alloc)
			}
		}
	}
}

// rebalancing is one step's work on one set.
type rebalancing struct {
	set  schema.JobName
	busy string // why nothing is moved now
}

// movable reports whether a task runs in an alloc of a set and could be told to
// leave it.
func (s *step) movable(set, job schema.JobName, t *schema.TaskRecord) bool {
	return t.Machine != "" && t.Alloc != nil && t.Alloc.Of(job).JobName == set && t.Stop == nil && s.isUp(t.Machine)
}

// unsettled says what of a set is on its way, which may change what belongs where;
// "" for nothing. An alloc that has found no place for long is not waited for.
func (s *step) unsettled(set schema.JobName) string {
	digest := s.job(set).Admitted
	for _, t := range s.tasks(set) {
		if t.Stop != nil || t.Machine == "" && s.holdsUp(t, digest) || t.Machine != "" && t.Data != digest {
			return fmt.Sprintf("alloc %s is being replaced", set.Task(t.Index).Short())
		}
		if s.isUp(t.Machine) && !Works(s.in.Observed.Status(t.Machine, set.Task(t.Index), t.Generation)) {
			return fmt.Sprintf("alloc %s is starting", set.Task(t.Index).Short())
		}
	}
	for _, job := range s.insideOf(set) {
		for _, t := range s.tasks(job) {
			if t.Stop != nil {
				return fmt.Sprintf("%s is stopping", job.Task(t.Index).Short())
			}
		}
	}
	return ""
}

// excess returns a task of a job in the alloc that has the most of its tasks, and
// the alloc that it belongs in: one that has two fewer at least, and room for it. A job
// for which there is only no room is not idle: what gives room, such as a port of the
// machine, may be no task of the set.
func (s *step) excess(set, job schema.JobName) (t schema.TaskRecord, alloc schema.TaskName, ok bool) {
	in := make([][]schema.TaskRecord, s.allocsOf(set))
	for _, t := range s.tasks(job) {
		if s.movable(set, job, &t) && t.Alloc.Index < len(in) {
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
		if t := most[len(most)-1]; s.refuses(job, &t, set.Task(i)) == "" {
			return t, set.Task(i), true
		}
		s.memo.wakeUp(job)
		s.asking[job] = true
	}
	return t, alloc, false
}

// refuses says why an alloc that is there would not take a task that runs in
// another, "" if it would.
func (s *step) refuses(job schema.JobName, t *schema.TaskRecord, alloc schema.TaskName) placement.Reason {
	p := s.placementAsk(ask{job.Task(t.Index), s.dataOf(s.job(job).Admitted), s.job(job).Admitted})
	p.Alloc = alloc
	fork := s.without(victim{p.Name, t.Machine})
	defer fork.Release()
	v, _ := fork.Verdict(p, s.recordOf(alloc).Machine)
	return v.Reason
}

// settleIn has a task moved into the alloc that it belongs in, and says what that
// waits for. It has been where it is for a while, so that what changes again and
// again moves nothing again and again.
func (s *step) settleIn(r *rebalancing, job schema.JobName, t schema.TaskRecord, alloc schema.TaskName) {
	name, m := alloc.Short(), Misplaced{Alloc: alloc, Due: true}
	away := s.away(alloc)
	var refused placement.Reason
	if away == "" {
		refused = s.refuses(job, &t, alloc)
	}
	switch at := t.At.Add(awaitAlloc); {
	case away != "":
		m.Due, m.Text = false, fmt.Sprintf("belongs in alloc %s, %s", name, away)
	case refused != "":
		m.Due, m.Text = false, fmt.Sprintf("belongs in alloc %s, which cannot take it: %s", name, refused)
	case s.waits(at, awaitAlloc):
		m.Text = fmt.Sprintf("belongs in alloc %s, and moves there at %s", name, at.UTC().Format(time.TimeOnly))
	case r.busy != "":
		m.Text = fmt.Sprintf("belongs in alloc %s, and waits: %s", name, r.busy)
	default:
		kept := s.rebalance(job, t, fmt.Sprintf("it belongs in alloc %s, which has room for it", name))
		if m.Text = fmt.Sprintf("belongs in alloc %s, and waits: %s", name, kept); kept == "" {
			r.busy = fmt.Sprintf("%s is stopping", job.Task(t.Index).Short())
			return
		}
	}
	s.memo.wakeUp(job)
	s.asking[job] = true // it is not idle
	if s.out.Misplaced == nil {
		s.out.Misplaced = map[schema.TaskName]Misplaced{}
	}
	s.out.Misplaced[job.Task(t.Index)] = m
}

// rebalance stops a task that serves so that it is placed where it belongs, within
// the disruption budget; or it says why it may not be stopped now.
func (s *step) rebalance(job schema.JobName, t schema.TaskRecord, message string) (kept string) {
	if why := s.disruptionBlocked(job, &t); why != "" {
		return why
	}
	s.disrupt(job, t, schema.Cause{Kind: schema.CauseRebalance, Message: message, At: s.now})
	return ""
}
