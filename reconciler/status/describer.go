package status

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Describer describes a cell at one moment after the other. It makes again only what may
// have changed since the moment before: the status of a job whose documents are the
// same, whose machines have said nothing new, and in which nothing depends on the time,
// is that of the Snapshot before. What it returns is the same as that of a new one. The
// zero value has described nothing. A Describer belongs to one goroutine at a time, and
// to the State and Observed of one master.
type Describer struct {
	facts    facts.Known
	names    []schema.JobName // of jobs, sorted
	jobs     map[schema.JobName]*jobPart
	machines map[string]*machinePart
	states   map[string]machineState // of machines, at the moment before
	loads    map[string]load         // of machines that hold any tasks
	changes  int                     // see facts.MachinesChangedSince
	written  int                     // see model.State.WrittenSince
	draining map[string]*control.Draining
	services services
	shared   bool // see NewSharedDescriber
}

// NewSharedDescriber returns a Describer that may be asked to Describe and whether the cell has
// Converged, in any order.
func NewSharedDescriber() *Describer { return &Describer{shared: true} }

// jobPart is the status of a job, and what it depends on.
type jobPart struct {
	Part
	origin schema.Position // of the newest version
	// cacheable says that it is a function of its documents, and of what its machines said.
	cacheable bool
	loads     []machineLoad
	only      string // the machine on which alone it crashes; "" if there is none
	// remarks are the tasks that are as desired, and have a reason all the same: the
	// remarks.
	remarks map[string]bool
}

// load is what tasks take of a machine.
type load struct {
	used   schema.Resources // limits
	tasks  int
	own    int // of these, those of system jobs
	coming int // tasks that are on their way to it, or for which it is held
}

// with returns a load and so many times another one.
func (l load) with(x load, times int) load {
	return load{l.used.Add(x.used.Times(times)), l.tasks + times*x.tasks, l.own + times*x.own, l.coming + times*x.coming}
}

type machineLoad struct {
	machine string
	load
}

// machineState is what the tasks on a machine are a function of.
type machineState struct {
	report   uint64 // 0: none
	health   model.Health
	draining bool
	address  string
	subnets  string // those of now, and what they were before
}

// machinePart is the status of a machine.
type machinePart struct {
	MachineStatus
	basis     machineBasis
	cacheable bool // it is a function of its basis
}

type machineBasis struct {
	machineState
	record  *schema.MachineRecord
	desired *intent.Desired
	load    load
}

// Describe returns the cell as its users see it.
func (k *Describer) Describe(in DescribeInput) *Snapshot {
	d := newDescriber(in, k)
	d.repository()
	touched := d.touched()
	k.forget(in.State)
	d.room(len(k.names))
	for _, name := range k.names {
		p := k.jobs[name]
		if p == nil || !p.cacheable || touched[name] || !d.stands(name, p) {
			p = d.describe(name)
			k.replace(name, p)
		}
		d.add(p)
	}
	d.suspended()
	for _, p := range d.parts {
		if p.Job.Kind == schema.Allocs { // never cacheable, so nobody has it yet
			d.addInside(p)
		}
	}
	d.machines()
	d.status.Waiting = d.status.waitingFor(d.parts, nil)
	d.status.Converged = len(d.status.Waiting) == 0
	d.status.Blocked = d.status.blockers(func(string) bool { return true })
	return &Snapshot{brief: &d.status, parts: d.parts, machines: d.machine, served: k.services.of(in.desired(), in.State)}
}

// forget drops jobs and machines that are gone, and keeps the names of the jobs.
func (k *Describer) forget(s *model.State) {
	same := len(k.names) == len(s.Jobs)
	for i := 0; same && i < len(k.names); i++ {
		same = s.Jobs[k.names[i]] != nil
	}
	if !same {
		k.names = s.JobNames()
		for name := range k.jobs {
			if s.Jobs[name] == nil {
				k.replace(name, nil)
			}
		}
	}
	for name := range k.machines {
		if s.Machines[name] == nil {
			delete(k.machines, name)
		}
	}
}

// replace caches the status of a job; nil removes that of one that is gone.
func (k *Describer) replace(name schema.JobName, p *jobPart) {
	if was := k.jobs[name]; was != nil {
		for _, x := range was.loads {
			l := k.loads[x.machine]
			if l = l.with(x.load, -1); l == (load{}) {
				delete(k.loads, x.machine)
			} else {
				k.loads[x.machine] = l
			}
		}
	}
	if p == nil {
		delete(k.jobs, name)
		return
	}
	k.jobs[name] = p
	for _, x := range p.loads {
		k.loads[x.machine] = k.loads[x.machine].with(x.load, 1)
	}
}

// touched returns the jobs whose status may have changed: since a document of theirs was
// written, a machine of theirs has said something or is another way, or since the newest
// step or a guard says something of them.
func (d *describer) touched() map[schema.JobName]bool {
	out, k := map[schema.JobName]bool{}, d.described
	written, next, ok := d.in.State.WrittenSince(k.written)
	if k.written = next; !ok {
		written = slices.Collect(maps.Keys(k.jobs))
	}
	for _, name := range written {
		out[name] = true
	}
	for _, name := range d.changedMachines() {
		was, now := k.states[name], d.stateOf(name)
		if was == now {
			continue
		}
		if k.states[name] = now; d.in.State.Machines[name] == nil {
			delete(k.states, name)
		}
		d.touchedOn(name, was, now, out)
	}
	for task := range d.in.Last.Misplaced {
		out[task.JobName] = true
	}
	for job := range d.in.Last.Admission.Rejected {
		out[job] = true
	}
	for job := range d.kept {
		out[d.in.State.JobName(job)] = true
	}
	return out
}

// touchedOn adds the jobs whose status may have changed since a machine was another way: those
// of the tasks of which it says something else now, or all that it has if it is not only that.
func (d *describer) touchedOn(name string, was, now machineState, jobs map[schema.JobName]bool) {
	if len(d.described.jobs) == 0 {
		return // nothing of them is kept
	}
	reports := was.report
	if was.report = now.report; was == now && d.in.Observed.Last(name).NewsSince(reports, func(t *schema.TaskStatus) { jobs[t.Task.JobName] = true }) {
		return
	}
	for job := range d.in.State.JobsOn(name) {
		jobs[job] = true
	}
}

// changedMachines returns the machines that may be another way than at the moment before:
// of which something is new, those that are silent, and those that are drained, or were.
func (d *describer) changedMachines() []string {
	k, was := d.described, d.described.draining
	names, next, ok := d.facts().MachinesChangedSince(k.changes)
	k.changes, k.draining = next, d.in.Last.Draining
	if !ok {
		return slices.AppendSeq(slices.Clone(d.facts().Machines()), maps.Keys(k.states))
	}
	names = slices.AppendSeq(slices.Clone(names), maps.Keys(d.facts().SilentMachines()))
	names = slices.AppendSeq(names, maps.Keys(was))
	return slices.AppendSeq(names, maps.Keys(k.draining))
}

// stateOf returns how a machine is.
func (d *describer) stateOf(name string) machineState {
	s := machineState{health: d.facts().Health(name), draining: d.in.Last.Draining[name] != nil}
	if h := d.in.Observed.Last(name); h != nil {
		s.report = h.Number
	}
	if r := d.in.State.Machines[name]; r != nil {
		s.address, s.subnets = r.Address, listed(r.Subnets, r.Leaving)
	}
	return s
}

// stands reports whether the status of a job that is not touched is p still.
func (d *describer) stands(name schema.JobName, p *jobPart) bool {
	return d.under.All == nil && p.origin == d.desired.Jobs[name].Origin
}

// mayCache reports whether the status of a job may depend on its documents and its
// machines alone: nobody says anything of it, and it is of a kind that needs to know of
// nothing else.
func (d *describer) mayCache(name schema.JobName, r *schema.JobRecord, want *schema.Job) bool {
	return want != nil && want.Kind != schema.System && want.Kind != schema.Allocs && r.Rollout == nil &&
		d.under.Of(name) == nil && d.kept[name.Short()] == "" && len(d.facts().Asked[name]) == 0 && d.in.Last.Admission.Rejected[name] == nil
}

// isCacheable reports whether the status of a task depends only on its record and on what
// its machine said.
func (d *describer) isCacheable(name schema.TaskName, r reportedRecord, t *TaskStatus) bool {
	switch {
	case t.State == TaskDone:
		return true
	case t.State != TaskRunning || d.in.Last.Draining[r.Machine] != nil:
		return false
	}
	if _, misplaced := d.in.Last.Misplaced[name]; misplaced || r.said.TaskStatus == nil {
		return false
	}
	// Whether an incarnation counts as one that crashes depends on how long it runs.
	return len(r.said.Exits) == 0 || d.in.Now.Sub(r.said.Since) >= steadyAfter+time.Second
}

// basisOfMachine returns what the status of a machine depends on.
func (d *describer) basisOfMachine(name string) machineBasis {
	return machineBasis{d.stateOf(name), d.in.State.Machines[name], d.desired, d.described.loads[name]}
}

// room makes room for so many jobs.
func (d *describer) room(jobs int) {
	d.parts = slices.Grow(d.parts, jobs)
	d.status.Jobs = slices.Grow(d.status.Jobs, jobs)
}

// add adds the status of a job to that of the cell.
func (d *describer) add(p *jobPart) {
	d.parts = append(d.parts, &p.Part)
	d.status.Jobs = append(d.status.Jobs, *p.Job)
	if p.only != "" {
		d.alone[p.only] = append(d.alone[p.only], p.Job.Name)
	}
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.Alloc != "" {
			d.inside[t.Alloc] = append(d.inside[t.Alloc], t.Name)
		}
	}
}

// addInside adds to the status of allocs which tasks run in them.
func (d *describer) addInside(p *Part) {
	for i := range p.Tasks {
		if inside := d.inside[p.Tasks[i].Name]; len(inside) > 0 {
			slices.Sort(inside)
			p.Tasks[i].Inside = inside
		}
	}
}

// briefly finds out whether a job waits, and caches that it does not.
func (d *describer) briefly(name schema.JobName) *jobPart {
	// A rollout that goes on waits for something, and nobody asks for what.
	if x := d.in.State.Jobs[name].Rollout; x != nil && x.Failed == "" && x.Returned == "" && d.under.Of(name) == nil {
		return &jobPart{Part: Part{waits: "a rollout is not complete"}}
	}
	if p := d.described.jobs[name]; p != nil && p.cacheable && d.stands(name, p) {
		return p
	}
	p := d.describe(name)
	if d.described.replace(name, nil); p.waits == "" && p.cacheable {
		if !d.described.shared {
			p.Tasks, p.loads, p.remarks = nil, nil, nil // of which nobody asks
		}
		d.described.replace(name, p)
	}
	return p
}
