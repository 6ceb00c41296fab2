package snapshot

import (
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// On is a task, and the machine that it is on or "".
type On struct {
	Task    schema.TaskName
	Machine string
}

// Eligible returns the machines that tasks of a job may be placed on, sorted.
func (c *Cell) Eligible(want *schema.Job) []string {
	names, ok := c.mayRun[want]
	if !ok {
		names = c.Snapshot().Eligible(bareAsk(want.ID().Task(0), want, c.facts.Desired.Policy.Network))
		c.mayRun[want] = names
	}
	return names
}

// MayStay returns the machines on which tasks of a job that run may go on, sorted. Those of
// Eligible are among them, and others that could not give a new task its network now: one that
// runs has what it has. But for those of system jobs, tasks stay on machines whatever their taints.
func (c *Cell) MayStay(want *schema.Job) []string {
	system := want.Kind == schema.System
	if system && !want.OwnNetwork(c.facts.Desired.Policy.Network) {
		return c.Eligible(want)
	}
	names, ok := c.mayStay[want]
	if !ok {
		may := c.Snapshot().MayStay
		if system {
			may = c.Snapshot().Eligible
		}
		names = may(stayAsk(want.ID().Task(0), want))
		c.mayStay[want] = names
	}
	return names
}

// InPlace reports whether a task that runs the data with the given digest on
// a machine can go on as it is when want is its data. For a task without one
// only what a new process would change counts.
func (c *Cell) InPlace(digest schema.Digest, want *schema.Job, at On) bool {
	change, fields := c.facts.Diff(c.facts.Data(digest), want)
	if change == intent.Restart {
		return false
	}
	does := func(c intent.Change) bool {
		return slices.ContainsFunc(fields, func(f intent.FieldChange) bool { return f.Change == c })
	}
	switch {
	case does(intent.Resize) && at.Machine == "":
		return false // it may do better with more
	case does(intent.Resize) && !c.Snapshot().HasRoom(at.Task, at.Machine, want.Task.Resources.Resources):
		return false
	case does(intent.Resize) && !c.LeavesHeld(want, at):
		return false
	case does(intent.Move) && at.Machine != "":
		_, ok := slices.BinarySearch(c.MayStay(want), at.Machine)
		return ok
	}
	return true
}

// LeavesHeld reports whether a task that runs on a machine, or ran there last, may have there what its
// job wants now: it takes no more than it has, or what it takes is not in the way of those for which the
// machine is held, as the records say.
func (c *Cell) LeavesHeld(want *schema.Job, at On) bool {
	t := c.facts.Task(at.Task)
	if t == nil || want.AllocSet != "" || want.Task.Resources.Resources.Fits(c.facts.Data(t.Data).Task.Resources.Resources) {
		return true
	}
	holders := c.holdersOf(at.Machine)
	if len(holders) == 0 {
		return true
	}
	c.Snapshot().SetTimes(c.facts.Now, c.runs.ends)
	fork := c.Without(at)
	defer fork.Release()
	p, _ := c.Placement(Ask{at.Task, want, c.facts.Job(at.Task.JobName).Admitted})
	p.On, p.Waited, p.Held = at.Machine, 0, ""
	fits := func() bool { return fork.Fits(p, false) }
	if !fits() {
		return true // whatever is held
	}
	for _, name := range holders {
		h := c.facts.Task(name)
		if c.facts.Admitted(name.JobName) == nil || h == nil || h.Machine != "" || h.Held == nil || name.JobName == at.Task.JobName {
			continue // it has gone, or has a place, since; or the room is its own job's
		}
		a, _ := c.Placement(Ask{name, c.facts.Admitted(name.JobName), c.facts.Job(name.JobName).Admitted})
		if a.With(at.Task.JobName) && !facts.HadPlace(h) {
			continue // the room is its own gang's
		}
		d := placement.Decision{Why: placement.Why{Held: at.Machine}}
		fork.Hold(&a, &d)
	}
	return fits()
}

// holdersOf returns the tasks for which a machine was held when it was asked first, in order.
func (c *Cell) holdersOf(machine string) []schema.TaskName {
	if c.holders == nil {
		c.holders = map[string][]schema.TaskName{}
		for _, key := range c.facts.ChunkNames() {
			tasks := c.facts.Chunk(key).Tasks
			for i := range tasks {
				if t := &tasks[i]; t.Machine == "" && t.Held != nil && c.facts.Admitted(key.Job) != nil {
					c.holders[t.Held.Machine] = append(c.holders[t.Held.Machine], key.Job.Task(t.Index))
				}
			}
		}
	}
	return c.holders[machine]
}

// NoPlace says why no machine other than its own would take a task now, "" if one would. hold has
// machines held that are held for others.
func (c *Cell) NoPlace(a Ask, t *schema.TaskRecord, hold func(*placement.Snapshot)) (why string, until facts.Until) {
	_, why, until = c.PlaceElsewhere(a, t, hold)
	return why, until
}

// PlaceElsewhere returns the machine other than its own that would take a task now as it is, or says
// why none would. It is "" without a reason if where the task goes is found out with others. hold has
// machines held that are held for others.
func (c *Cell) PlaceElsewhere(a Ask, t *schema.TaskRecord, hold func(*placement.Snapshot)) (to, why string, until facts.Until) {
	p, until := c.Placement(a)
	p.Avoid = append(slices.Clip(p.Avoid), t.Machine)
	slices.Sort(p.Avoid)
	p.Avoid = slices.Compact(p.Avoid)
	fork := c.Without(On{a.Task, t.Machine})
	defer fork.Release()
	hold(fork)
	if !fork.Fits(p, false) {
		return "", fork.Explain(p).String(), until
	}
	if p.Together > 0 || p.Gang != nil {
		return "", "", until
	}
	if d := placement.Place(fork, []placement.Ask{p}, 0)[0]; !d.Later && len(d.Victims) == 0 {
		to = d.Machine
	}
	return to, "", until
}

// NoRoomAtHome says why a task that stays on a machine does not get it, by a snapshot.
func (c *Cell) NoRoomAtHome(a *placement.Ask, machines *placement.Snapshot) string {
	why := "it is silent"
	switch {
	case c.facts.IsUp(a.On) && c.facts.MachineSpec(a.On).Drain != nil:
		why = "it is being drained"
	case c.facts.IsUp(a.On):
		v, _ := machines.Verdict(*a, a.On)
		why = "it has no room yet"
		if v.Reason != "" {
			why = "it " + v.Reason.One()
		}
	}
	return facts.WaitsForHome(a.On) + ": " + why
}

// Refuses says why an alloc that is there would not take a task that runs in
// another, "" if it would.
func (c *Cell) Refuses(job schema.JobName, t *schema.TaskRecord, alloc schema.TaskName) (placement.Reason, facts.Until) {
	p, until := c.Placement(Ask{job.Task(t.Index), c.facts.Admitted(job), c.facts.Job(job).Admitted})
	p.Alloc = alloc
	fork := c.Without(On{p.Name, t.Machine})
	defer fork.Release()
	v, _ := fork.Verdict(p, c.facts.Task(alloc).Machine)
	return v.Reason, until
}

// Without returns a fork of the snapshot that tasks have left. The caller releases it.
func (c *Cell) Without(tasks ...On) *placement.Snapshot {
	fork := c.Snapshot().Fork()
	for _, t := range tasks {
		fork.RemoveTask(t.Task, t.Machine, 0)
	}
	return fork
}

// Claim holds room on a machine for an ask, see placement.Snapshot.ClaimMove, as if the task had left
// the machine that it is on: of what bounds its job, or has to be apart from it, it is no part.
func (c *Cell) Claim(a *placement.Ask, machine string, leaving []placement.Victim) bool {
	s, t := c.Snapshot(), c.facts.Task(a.Name)
	if t != nil && t.Machine != "" && !c.away[a.Name] {
		s.RemoveTask(a.Name, t.Machine, 0)
		defer s.SetTask(c.taskOf(a.Name.JobName, t))
	}
	return s.ClaimMove(*a, machine, leaving)
}

// GoesWith returns a task and, of an alloc, what runs inside.
func (c *Cell) GoesWith(job schema.JobName, t *schema.TaskRecord) []On {
	name := job.Task(t.Index)
	out := []On{{name, t.Machine}}
	if c.facts.Data(t.Data).Kind == schema.Allocs {
		out = append(out, c.insideOf(out[0])...)
	}
	return out
}

// insideOf returns what runs inside an alloc on its machine, sorted by name.
func (c *Cell) insideOf(alloc On) []On {
	if c.inside == nil {
		c.inside = map[On][]On{}
		for _, key := range c.facts.ChunkNames() {
			tasks := c.facts.Chunk(key).Tasks
			for i := range tasks {
				if host := hostOf(key.Job, &tasks[i]); host != (On{}) {
					c.inside[host] = append(c.inside[host], On{key.Job.Task(tasks[i].Index), tasks[i].Machine})
				}
			}
		}
	}
	return c.inside[alloc]
}

// hostOf returns the alloc that a task runs in; the zero On if it runs in none. t may be nil.
func hostOf(job schema.JobName, t *schema.TaskRecord) On {
	if t == nil || t.Alloc == nil {
		return On{}
	}
	return On{t.Alloc.Of(job), t.Machine}
}

// Near returns what tasks that run some data have to be near.
func (c *Cell) Near(data schema.Digest) (out []placement.Affinity) {
	for _, a := range c.askOf(data).Relations.Affinity {
		if a.Weight == 0 {
			out = append(out, a)
		}
	}
	return out
}

// Labels returns the labels of tasks that run some data, by which affinities pick them. They are not to be
// written to.
func (c *Cell) Labels(data schema.Digest) map[string]string { return c.askOf(data).Relations.Labels }

// Picks reports whether an affinity picks tasks that run some data.
func (c *Cell) Picks(a *placement.Affinity, data schema.Digest) bool {
	return (a.User == "" || a.User == c.facts.Data(data).User) && a.Selector.Matches(c.askOf(data).Relations.Labels)
}

// PlaceTogether returns the machines that would take all of the tasks that ask once others have left
// theirs; nil if none would take one of them. Nobody is preempted for them. hold has machines held that
// are held for others.
func (c *Cell) PlaceTogether(tasks []Ask, leaving []On, hold func(*placement.Snapshot)) (map[schema.TaskName]string, facts.Until) {
	var until facts.Until
	asks, inside := make([]placement.Ask, 0, len(tasks)), []placement.Ask{}
	gang := &placement.Gang{} // of all of them, and of no name
	users := map[string]bool{}
	for _, a := range tasks {
		p, changes := c.Placement(a)
		until = until.Or(changes)
		p.Waited, p.Held, p.Together, p.Gang, p.Returns = 0, "", 0, nil, false
		if p.AllocSet != (schema.JobName{}) {
			inside = append(inside, p)
			continue
		}
		if n := len(gang.Jobs); n > 0 && gang.Jobs[n-1].Job == a.Task.JobName { // they come job by job
			gang.Jobs[n-1].Tasks++
		} else {
			gang.Jobs = append(gang.Jobs, placement.GangJob{Job: a.Task.JobName, Tasks: 1})
		}
		users[a.Task.User] = true
		asks = append(asks, p)
	}
	// Those of one user are placed as a gang is, which tries one domain after the other. Such as have to
	// be near what runs in an alloc find it there only when that has its place.
	if len(users) == 1 {
		whole := slices.Clone(asks)
		for i := range whole {
			whole[i].Gang = gang
		}
		if found := c.placeAll(whole, inside, leaving, hold); found != nil {
			return found, until
		}
		if len(inside) == 0 {
			return nil, until
		}
	}
	return c.placeAll(asks, inside, leaving, hold), until
}

// placeAll places asks, and those that run inside allocs, round by round until all have places; nil if
// one of them gets none.
func (c *Cell) placeAll(asks, inside []placement.Ask, leaving []On, hold func(*placement.Snapshot)) map[schema.TaskName]string {
	fork := c.Without(leaving...)
	defer fork.Release()
	fork.Configure(c.options(false))
	out := map[schema.TaskName]string{}
	placed := func(list []placement.Ask) []placement.Ask {
		hold(fork) // for one pass
		for _, d := range placement.Place(fork, list, 0) {
			if d.Machine != "" && !d.Later && len(d.Victims) == 0 {
				out[d.Name] = d.Machine
			}
		}
		return slices.DeleteFunc(slices.Clone(list), func(a placement.Ask) bool { return out[a.Name] != "" })
	}
	for left := len(asks) + len(inside); left > 0; {
		asks = placed(asks)
		inside = placed(inside)
		n := len(asks) + len(inside)
		if n == left {
			return nil
		}
		left = n
	}
	return out
}

// WhileLeft does something as if tasks had left their machines. Of an alloc, what runs inside comes after it.
func (c *Cell) WhileLeft(tasks []On, do func()) {
	s := c.Snapshot()
	c.away = map[schema.TaskName]bool{}
	for _, t := range slices.Backward(tasks) {
		c.away[t.Task] = true
		s.RemoveTask(t.Task, t.Machine, 0)
	}
	do()
	c.away = nil
	for _, t := range tasks {
		s.SetTask(c.taskOf(t.Task.JobName, c.facts.Task(t.Task)))
	}
}
