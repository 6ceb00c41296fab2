package snapshot

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// Ask is a task that wants a machine, and the data that it will run.
type Ask struct {
	Task schema.TaskName
	Job  *schema.Job
	Data schema.Digest
}

// bareAsk returns what placement is asked for a task by its job's data alone.
// network is that of the cell, nil if it has none.
func bareAsk(task schema.TaskName, job *schema.Job, network *schema.CellNetwork) placement.Ask {
	a := stayAsk(task, job)
	if job.OwnNetwork(network) {
		a.Ports, a.PortNumbers = nil, nil
		needs := []string{schema.HasOwnNetwork, schema.HasSubnet}
		if job.AllocSet != "" {
			needs = append(needs, schema.HasAllocNetwork)
			a.AllocNumbers = slices.Sorted(maps.Values(job.Task.Resources.PortNumbers))
		}
		if job.Task.Runsc() {
			needs = append(needs, schema.HasKernelNetwork)
		}
		if network.PolicyOf(job.Policy) != nil {
			needs = append(needs, schema.HasPolicies)
			if len(job.Policy.Ports()) > 0 {
				needs = append(needs, schema.HasPolicyPorts)
			}
		}
		if network != nil {
			for _, plugin := range network.CNI.Types() {
				needs = append(needs, schema.HasCNI+plugin)
			}
		}
		for _, attribute := range needs {
			a.Constraints = append(a.Constraints, placement.Constraint{Attribute: attribute, Op: placement.OpIn, Values: []string{"true"}})
		}
	}
	return a
}

// stayAsk is bareAsk without what only a new generation needs: a network that the machine gives it.
func stayAsk(task schema.TaskName, job *schema.Job) placement.Ask {
	a := placement.Ask{
		Name: task, Priority: job.Priority, Limit: job.Task.Resources.Resources, Ports: job.Task.Resources.Ports, PortNumbers: job.Task.Resources.PortNumbers,
		IsAlloc: job.Kind == schema.Allocs, Everywhere: job.Kind == schema.System,
	}
	if set, inside := job.HostSet(); inside {
		a.AllocSet = set
	}
	where(&a, job)
	return a
}

// Placement returns what placement is asked for a task.
func (c *Cell) Placement(a Ask) (placement.Ask, facts.Until) {
	p := *c.ofAll(c.wanted(a), a.Task.JobName, a.Job)
	p.Name = a.Task
	t, r := c.facts.Task(a.Task), c.facts.Job(a.Task.JobName)
	if len(r.Apart) > 0 {
		p.Apart = c.facts.Apart(a.Task.JobName)
	}
	waited, until := c.waited(r, t, a.Task.Index)
	p.Waited = waited
	if p.Gang, p.Returns = c.gangOf(a, r, t); p.Gang == nil {
		p.Together, p.Returns = c.together(a, t)
	}
	if t == nil {
		return p, until
	}
	p.Had = c.had(t, a.Job)
	if t.Held != nil {
		p.Held, p.HeldSince, p.HeldUntil = t.Held.Machine, t.Held.Since, t.Held.Until
		until = until.Or(c.facts.At(p.HeldUntil))
	}
	if a.Job.Kind == schema.System { // there is no other place, so none to avoid or prefer
		p.On = t.On
		return p, until
	}
	if p.On = c.facts.Stays(a.Job, t); p.On != "" {
		return p, until
	}
	if p.Last = facts.RanOn(t); p.Last != "" && a.Job.Task.Sticky.Has() { // its directory is there
		p.Prefer = p.Last
	}
	if n := len(t.Causes); n > 0 && t.Causes[n-1].To != "" && t.Machine == "" {
		p.Prefer = t.Causes[n-1].To // it moves there
	}
	for _, m := range slices.Sorted(maps.Keys(t.Avoid)) {
		avoided, changes := c.facts.Waits(t.Avoid[m], facts.AvoidFor)
		if until = until.Or(changes); avoided {
			p.Avoid = append(p.Avoid, m)
		}
	}
	// Where every machine is to be avoided, avoiding helps nobody.
	if !slices.ContainsFunc(c.mayHold(a), func(m string) bool {
		return !c.facts.Closed(m) && c.facts.Observed.Admits(m, a.Job.Priority) && !slices.Contains(p.Avoid, m)
	}) {
		p.Avoid = nil
	}
	return p, until
}

// Expect has the snapshot know until when tasks are expected to run, and the asks how long they
// would, if one of these has waited so long that a machine may be held for it.
func (c *Cell) Expect(asks []placement.Ask) {
	if !slices.ContainsFunc(asks, func(a placement.Ask) bool { return a.Waited >= placement.DefaultReserveAfter }) {
		return
	}
	for i := range asks {
		name := asks[i].Name.JobName
		if i > 0 && name == asks[i-1].Name.JobName { // they come job by job
			asks[i].Lasts = asks[i-1].Lasts
		} else if job := c.facts.Admitted(name); job != nil {
			asks[i].Lasts = c.runs.lasts(name, job)
		}
	}
	c.Snapshot().SetTimes(c.facts.Now, c.runs.ends)
}

// together returns how many tasks of a job have to have places for any that asks to get
// one, 0 if each is placed for itself; and whether these are those only that had one. t is the record of the task.
func (c *Cell) together(a Ask, t *schema.TaskRecord) (n int, returns bool) {
	if !a.Job.Together {
		return 0, false
	}
	if facts.HadPlace(t) {
		if n = facts.ReturningTo(c.facts, a.Task.JobName); n > 0 {
			return n, true
		}
	}
	return facts.Together(c.facts, a.Task.JobName), false
}

// Gang returns the gang of a job, nil if it is in none.
func (c *Cell) Gang(job schema.JobName) *facts.Gang { return c.gangs.Of(job) }

// gangOf returns the gang of a task that asks as placement is asked for it, nil if it is in none,
// and whether it is of those only that had places; r is the record of its job, and t its own.
func (c *Cell) gangOf(a Ask, r *schema.JobRecord, t *schema.TaskRecord) (out *placement.Gang, returns bool) {
	if a.Job.Gang == "" && a.Data == r.Admitted {
		return nil, false // it is looked up for others only: what is admitted says the gang
	}
	g := c.Gang(a.Task.JobName)
	if g == nil {
		return nil, false
	}
	jobs := g.Jobs
	if returns = g.Returning != nil && facts.HadPlace(t); returns {
		jobs = g.Returning
	}
	out = &placement.Gang{Name: g.Name}
	for _, j := range jobs {
		out.Jobs = append(out.Jobs, placement.GangJob{Job: j.Name, Tasks: j.Tasks})
	}
	return out, returns
}

// mayHold returns the machines that are up and, for a task that runs in an
// alloc, have one: the one that it belongs in, if it does in a certain one.
func (c *Cell) mayHold(a Ask) []string {
	set, inside := a.Job.HostSet()
	if !inside {
		return c.facts.Up()
	}
	var out []string
	own, certain := c.facts.OwnAlloc(a.Task)
	for _, t := range c.facts.Tasks(set) {
		if certain && t.Index != own.Index {
			continue
		}
		if c.facts.IsUp(t.Machine) {
			out = append(out, t.Machine)
		}
	}
	return out
}

// waited returns how long the task of an index, without a machine, has been able to have one: a
// function of what is stored, so that a new master does not begin to count
// again. Placement may decide otherwise for it when the answer ends.
func (c *Cell) waited(r *schema.JobRecord, t *schema.TaskRecord, index int) (time.Duration, facts.Until) {
	since := r.AskedSince(index)
	if t != nil {
		if n := len(t.Causes); n > 0 && t.Causes[n-1].At.After(since) {
			since = t.Causes[n-1].At
		}
		if t.NotBefore.After(since) {
			since = t.NotBefore
		}
	}
	waited := max(0, c.facts.Now.Sub(since))
	const turn = placement.DefaultReserveAfter
	if len(c.facts.Up()) == 0 {
		return waited, facts.Until{}
	}
	return waited, c.facts.In(turn - waited%turn)
}
