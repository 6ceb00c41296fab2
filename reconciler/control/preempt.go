package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// Preemption takes several steps: victims are stopped, and the task that
// they make room for gets the machine only when all of them are known to be
// dead. Who stops for whom is in the record of the victim (Stop.By) and nowhere
// else. What a preemptor waits for follows from that in each step, so it
// survives a master, and is given up when the preemptor wants no machine any
// more, or when the machine goes.

// Claim is what a task waits for that has preempted others.
type Claim struct {
	Machine string            `json:"machine"`
	Victims []schema.TaskName `json:"victims"`
}

// String says it in words: "takes the place of u/a/0 on m1 once it has stopped".
func (c Claim) String() string {
	const most = 3
	names := make([]string, 0, most)
	for _, v := range c.Victims[:min(len(c.Victims), most)] {
		names = append(names, v.Short())
	}
	if n := len(c.Victims) - most; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return fmt.Sprintf("takes the place of %s on %s once they have stopped", strings.Join(names, ", "), c.Machine)
}

// claim holds, for each ask that others were preempted for, the room that they
// leave, and returns the asks that are to be decided now: all but those whose
// victims are still there.
func (s *scheduler) claim(asks []placement.Ask) []placement.Ask {
	if len(s.preempted) == 0 {
		return asks
	}
	var claims []int
	for i := range asks {
		if s.preempted[asks[i].Name.Short()] != nil {
			claims = append(claims, i)
		}
	}
	slices.SortFunc(claims, func(a, b int) int {
		return cmp.Or(cmp.Compare(asks[b].Priority, asks[a].Priority), asks[a].Name.Compare(asks[b].Name))
	})
	waits := map[int]bool{}
	for _, i := range claims {
		waits[i] = s.claimFor(&asks[i])
	}
	out := make([]placement.Ask, 0, len(asks))
	for i := range asks {
		if asks[i].Claims = waits[i] && s.waitsLong(&asks[i]); !waits[i] || asks[i].Claims {
			out = append(out, asks[i])
		}
	}
	return out
}

// claimPatience is how long a task waits for those that make room for it before it takes room
// elsewhere: most have stopped by then, and were stopped for nothing otherwise.
const claimPatience = 10 * time.Second

// waitsLong reports whether those that make room for an ask should have stopped by now, so that it
// is better off with other room.
func (s *scheduler) waitsLong(a *placement.Ask) bool {
	if a.Together > 0 || a.Gang != nil || a.On != "" || a.AllocSet != (schema.JobName{}) {
		return false
	}
	for _, v := range s.leaving(a.Name, s.claims[a.Name].Machine) {
		soon, until := s.Waits(s.Task(v.Name).Stop.At.Add(claimPatience), claimPatience)
		if s.bookCell(until); !soon {
			return true
		}
	}
	return false
}

// claimFor holds a machine for an ask and reports whether the ask has to wait
// for those that are leaving it. Victims may be left on several machines, when
// one of them was silent meanwhile, or they go together: one that the fewest have
// to leave yet, and nobody else, is taken.
func (s *scheduler) claimFor(a *placement.Ask) (waits bool) {
	machines := s.leftBy(a.Name)
	for _, machine := range s.movesFirst(a, machines) {
		leaving := s.leaving(a.Name, machine)
		if !s.cell.Snapshot().Claim(*a, machine, leaving, len(leaving) > 0) {
			continue
		}
		if len(leaving) > 0 {
			s.claims[a.Name] = claimOn(machine, leaving)
			return true
		}
		if a.On == "" { // it is decided now, and has the room
			a.Prefer = machine
		}
		s.claimed[a.Name] = true
		return false
	}
	return len(machines) > 0 && s.retake(a, machines[0])
}

// movesFirst returns machines with the one first that the task of an ask was stopped for, if it is
// up: room was kept there, and all that made it may have gone.
func (s *scheduler) movesFirst(a *placement.Ask, machines []string) []string {
	t := s.Task(a.Name)
	if t == nil || a.On != "" {
		return machines
	}
	to := movesTo(t)
	if to == "" || !s.IsUp(to) {
		return machines
	}
	return append([]string{to}, slices.DeleteFunc(slices.Clone(machines), func(m string) bool { return m == to })...)
}

// leftBy returns the machines that are up and on which others were preempted
// for a task: those first that the fewest have to leave yet, then by name.
func (s *scheduler) leftBy(task schema.TaskName) []string {
	var out []string
	for _, l := range s.preempted[task.Short()] {
		if s.IsUp(l.Machine) {
			out = append(out, l.Machine)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(len(s.leaving(task, a)), len(s.leaving(task, b))) })
	return out
}

// leaving returns those that were preempted for a task and are still on machine, unless another
// task has taken their room since.
func (s *scheduler) leaving(task schema.TaskName, machine string) (out []placement.Victim) {
	for _, l := range s.preempted[task.Short()] {
		if r := s.Task(l.Task); l.Machine == machine && r != nil && r.Machine == machine && r.Stop != nil && r.Stop.By == task.Short() {
			out = append(out, placement.Victim{Name: l.Task})
		}
	}
	return out
}

// retake preempts more tasks on a machine where those that are leaving do not
// suffice: a crash came between the records of one decision, or the ask has
// grown. It reports false when there is nothing to wait for.
func (s *scheduler) retake(a *placement.Ask, machine string) bool {
	leaving := s.leaving(a.Name, machine)
	if len(leaving) == 0 {
		return false
	}
	out := make([]snapshot.On, 0, len(leaving))
	for _, v := range leaving {
		out = append(out, snapshot.On{Task: v.Name, Machine: machine})
	}
	fork := s.cell.Without(out...)
	defer fork.Release()
	on := *a
	on.On, on.Together, on.Gang, on.Returns = machine, 0, nil, false // the others have their places, or claims as this one
	d := placement.Place(fork, []placement.Ask{on}, s.seed)[0]
	if d.Machine == "" {
		return false
	}
	s.evict(a.Name, a.Priority, d)
	s.cell.Snapshot().SetBudgets(s.spare) // they are less by who goes now
	leaving = s.leaving(a.Name, machine)
	s.claims[a.Name] = claimOn(machine, leaving)
	return s.cell.Snapshot().Claim(*a, machine, leaving, true)
}

// preempt stops the victims of a decision. The task stays pending until
// they have.
func (s *scheduler) preempt(a snapshot.Ask, d placement.Decision) {
	s.evict(a.Task, a.Job.Priority, d)
	s.claims[a.Task] = claimOn(d.Machine, s.leaving(a.Task, d.Machine))
}

// evict stops the victims of a decision. A victim may also be a claim: then
// those that are leaving for it leave for the new task.
func (s *scheduler) evict(by schema.TaskName, priority schema.Priority, d placement.Decision) {
	heirs := s.preempted[by.Short()]
	for _, v := range d.Victims {
		r := s.Task(v.Name)
		if r != nil && r.Machine == d.Machine && r.Stop == nil {
			message := fmt.Sprintf("makes room for %s, of priority %d", by.Short(), priority)
			if want := s.Admitted(v.Name.JobName); r.Behind != "" && want != nil && (!priority.Preempts(want.Priority) || want.NeverPreempted()) {
				message += ", behind which it got its place"
			}
			if over := s.budget.overspend(v.Name.JobName, r); over != "" {
				message += ", and no others could: " + over
			}
			s.stop(v.Name.JobName, *r, schema.Cause{Kind: schema.CausePreempted, By: by.Short(), At: s.Now, Message: message})
			heirs = append(heirs, snapshot.On{Task: v.Name, Machine: d.Machine})
			continue
		}
		if r != nil && r.Machine == d.Machine && s.goesWith(r) {
			s.leaveFor(v.Name, by)
			heirs = append(heirs, snapshot.On{Task: v.Name, Machine: d.Machine})
			continue
		}
		for _, left := range s.leaving(v.Name, d.Machine) {
			s.leaveFor(left.Name, by)
			heirs = append(heirs, snapshot.On{Task: left.Name, Machine: d.Machine})
		}
	}
	s.preempted[by.Short()] = heirs
	for _, v := range d.Victims {
		s.stopTogether(v.Name, by, priority)
	}
}

// goesWith reports whether a task was stopped in this step because another one was that it goes together with, so
// that nobody has counted on its room.
func (s *scheduler) goesWith(r *schema.TaskRecord) bool {
	return r.Stop != nil && r.Stop.Kind == schema.CausePreempted && r.Stop.At.Equal(s.Now)
}

// leaveFor has a task that is preempted leave for another one than so far.
func (s *scheduler) leaveFor(task, by schema.TaskName) {
	t := *s.Task(task)
	stop := *t.Stop
	stop.By = by.Short()
	t.Stop = &stop
	s.Set(task.JobName, t)
}

// stopTogether stops the other tasks of a job, or of its gang, whose tasks have places together
// or not at all, when one of them is preempted by one of a priority.
func (s *scheduler) stopTogether(victim, by schema.TaskName, priority schema.Priority) {
	r := s.Task(victim)
	job := s.Admitted(victim.JobName)
	if r == nil || r.Stop == nil || job == nil || !job.Gathers() {
		return
	}
	gang := s.cell.Gang(victim.JobName)
	if gang == nil {
		s.stopOthers(victim.JobName, victim, by)
		return
	}
	for _, member := range gang.Jobs {
		// A gang has one priority: of a job that is about to have another one nothing goes.
		if j := s.Admitted(member.Name); j != nil && j.Priority < priority {
			s.stopOthers(member.Name, victim, by)
		}
	}
}

// stopOthers stops the tasks of a job that go together with a victim.
func (s *scheduler) stopOthers(job schema.JobName, victim, by schema.TaskName) {
	for _, t := range s.Tasks(job) {
		if t.Machine == "" || t.Stop != nil || t.Done != nil {
			continue
		}
		message := fmt.Sprintf("goes together with %s, which makes room for %s", victim.Short(), by.Short())
		if over := s.budget.overspend(job, &t); over != "" {
			message += ": " + over
		}
		s.stop(job, t, schema.Cause{Kind: schema.CausePreempted, By: by.Short(), At: s.Now, Message: message})
	}
}

func claimOn(machine string, victims []placement.Victim) Claim {
	c := Claim{Machine: machine}
	for _, v := range victims {
		c.Victims = append(c.Victims, v.Name)
	}
	slices.SortFunc(c.Victims, schema.TaskName.Compare)
	return c
}

// vacated is the room that tasks of lower priority leave for one on a machine that is drained.
type vacated struct {
	ask      placement.Ask
	decision placement.Decision
}

// vacateSearches is how many machines are looked at where others wait for the room that could be
// made.
const vacateSearches = 4

// vacate looks for room for a task on a machine that is drained, which others have to leave for
// it, and holds it for the task, as far as the disruption budgets of these allow: a drain can wait.
// If there is none, kept says what keeps the others where they are, "" if there are no such. The
// caller stops the task and then, with evict, the others.
func (s *scheduler) vacate(task schema.TaskName) (v vacated, kept string) {
	if s.noPreempt {
		return v, ""
	}
	on := snapshot.On{Task: task, Machine: s.Task(task).Machine}
	v.ask = s.vacating(on)
	for _, machine := range s.leftBy(task) { // a master may have died before it had stopped the task
		if leaving := s.leaving(task, machine); len(leaving) > 0 && s.cell.Claim(&v.ask, machine, leaving) {
			v.decision = placement.Decision{Name: task, Machine: machine, Victims: leaving}
			return v, ""
		}
	}
	s.configure()
	for range vacateSearches {
		d := s.placeWithout(&v.ask, on)
		if d.Machine == "" {
			break
		}
		claimant, why := s.keptFrom(&d)
		if claimant != "" {
			kept = fmt.Sprintf("room could be made on %s, but %s waits for it", d.Machine, claimant)
			v.ask.Avoid = avoiding(v.ask.Avoid, d.Machine)
			continue
		}
		if why == "" && !s.cell.Claim(&v.ask, d.Machine, d.Victims) {
			why = "that would not be enough" // nobody goes for nothing
		}
		if why != "" {
			return v, fmt.Sprintf("preempting %s on %s would make room, but %s", schema.Count(len(d.Victims), "task"), d.Machine, why)
		}
		v.decision = d
		return v, ""
	}
	return v, kept
}

// vacating returns what is asked for a task that is to leave its machine.
func (s *scheduler) vacating(on snapshot.On) placement.Ask {
	job := on.Task.JobName
	a := s.placement(snapshot.Ask{Task: on.Task, Job: s.Admitted(job), Data: s.Job(job).Admitted})
	a.Avoid = avoiding(a.Avoid, on.Machine)
	a.Together, a.Gang, a.Returns = 0, nil, false // the others have their places
	a.Waited = 0                                  // it runs
	return a
}

// avoiding returns the machines that an ask avoids with one more, sorted, each once.
func avoiding(avoid []string, machine string) []string {
	return slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(avoid), machine))))
}

// placeWithout decides an ask in the cell without a task.
func (s *scheduler) placeWithout(a *placement.Ask, task snapshot.On) placement.Decision {
	fork := s.cell.Without(task)
	defer fork.Release()
	s.holdsFrom(task.Task)(fork)
	return placement.Place(fork, []placement.Ask{*a}, s.seed)[0]
}

// keptFrom says what keeps a task that can wait from the room of its victims, if anything does:
// another task that is to have what one leaves, or the budget of a job.
func (s *scheduler) keptFrom(d *placement.Decision) (claimant, why string) {
	lost := map[schema.JobName]int{}
	for _, v := range d.Victims {
		if r := s.Task(v.Name); r == nil || r.Machine != d.Machine || r.Stop != nil {
			return v.Name.Short(), ""
		}
		lost[v.Name.JobName]++
	}
	if d.Overruns == 0 {
		return "", ""
	}
	for _, v := range d.Victims {
		if left, bound := s.spare(v.Name.JobName); bound && lost[v.Name.JobName] > left {
			return "", fmt.Sprintf("the disruption budget of %s does not allow that now", v.Name.JobName.Short())
		}
	}
	return "", "the disruption budget of a job that goes with them does not allow that now"
}
