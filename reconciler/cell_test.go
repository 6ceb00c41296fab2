package reconciler_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// epoch is when every test begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// cell is a master without goroutines and the machines that report to it: agents
// that apply their views at once.
type cell struct {
	docs      map[string][]byte // the store
	master    *reconciler.Master
	state     *model.State    // of the master
	observed  *model.Observed // of the master
	now       time.Time
	head      schema.Compiled // newest commit
	last      control.Output
	in        control.Input                  // of the newest step
	forgets   bool                           // each step goes without what the one before has found out
	reported  map[string][]schema.TaskStatus // by this master, by machine
	views     map[string]schema.View         // last that this master pushed, by machine
	agents    []*agent                       // sorted by name
	rejected  map[string]bool                // jobs of which an event has said so
	describer status.Describer               // of the master
	looked    status.Describer               // the same, for whether it has converged
	shared    *status.Describer              // the same, for both
	pids      int
	joinWait  time.Duration
}

// agent is one machine.
type agent struct {
	info       schema.MachineInfo
	silent     bool
	offline    bool // no registry answers it: no image comes
	hangs      bool // no task stops
	busy       []int
	conditions []schema.Condition
	relief     []string                      // tasks that would relieve it; nil: it is not overloaded
	suffers    schema.TaskName               // that waits there
	tasks      map[uint64]*schema.TaskStatus // by generation
}

func newCell() *cell {
	c := &cell{docs: map[string][]byte{}, now: epoch, rejected: map[string]bool{}}
	c.restart()
	return c
}

// restart replaces the master by one that knows what is stored.
func (c *cell) restart() {
	m, err := reconciler.NewMaster(reconciler.MasterConfig{Cell: "c", JoinWait: c.joinWait, Step: c.stepOf}, c.docs, c.now)
	if err != nil {
		panic(err)
	}
	c.master, c.state, c.observed = m, m.State(), m.Observed()
	c.describer, c.looked, c.shared = status.Describer{}, status.Describer{}, status.NewSharedDescriber()
	c.reported, c.views = map[string][]schema.TaskStatus{}, map[string]schema.View{}
	c.carryOut() // that it leads
}

// stepOf is a step of the master, whose input is looked at again when what it
// decided is stored.
func (c *cell) stepOf(in control.Input) control.Output {
	if c.forgets { // which may choose between machines that are about as good
		in.Memo = &control.Memo{}
	}
	c.in = in
	return control.Step(in)
}

// carryOut does what the master wants done, and returns its events. Agents take
// their views when they report.
func (c *cell) carryOut() []schema.Event {
	var events []schema.Event
	for {
		ready, more := c.master.Ready(c.now)
		if !more {
			return events
		}
		c.take(ready.Writes)
		events = append(events, ready.Events...)
		for _, v := range ready.Views {
			c.views[v.Machine] = v.View
		}
		c.master.Advance(c.now)
	}
}

// take stores writes, batch by batch.
func (c *cell) take(writes []model.Write) {
	for _, batch := range model.Batches(writes) {
		for _, w := range batch {
			if w.Value == nil {
				delete(c.docs, w.Key)
			} else {
				c.docs[w.Key] = w.Value
			}
		}
		if err := c.master.Stored(batch); err != nil {
			panic(err)
		}
	}
}

func (c *cell) commit(compiled schema.Compiled) []schema.Event {
	c.head = compiled
	c.master.Head(model.Seen{Commit: compiled.Commit}, c.now)
	c.master.Compiled(&compiled, c.now)
	events := c.carryOut()
	for i := range events {
		if e := &events[i]; e.Kind == schema.EventReject {
			c.rejected[e.Job] = true
		}
	}
	return events
}

func (c *cell) step() control.Output {
	reconciler.OnTime(c.master, c.now)
	c.master.Decide()
	c.carryOut()
	c.last = *c.master.Last()
	in := c.master.Input(c.now)
	in.Reserved = c.in.Reserved
	if err := c.in.Memo.Audit(in); err != nil {
		panic(err)
	}
	c.auditViews()
	return c.last
}

// auditViews panics when a machine was pushed another view than what is stored makes of
// all task records, or none.
func (c *cell) auditViews() {
	if c.state.Recovering() {
		return
	}
	want := map[string][]string{}
	for _, name := range c.state.ChunkNames() {
		for _, r := range c.state.Chunks[name].Tasks {
			if c.state.Heavy(r.Data) > 0 { // which cannot be sent
				continue
			}
			want[r.Machine] = append(want[r.Machine], fmt.Sprintf("%s %d %s stop=%t", name.Job.Task(r.Index), r.Generation, r.Data, r.Stop != nil))
		}
	}
	for machine, view := range c.views {
		if c.state.Machines[machine] == nil {
			delete(c.views, machine) // with its session
			continue
		}
		var have []string
		for _, a := range view.Assignments {
			have = append(have, fmt.Sprintf("%s %d %s stop=%t", a.Task, a.Generation, schema.DigestOf(a.Job), a.Stop != nil))
		}
		if !slices.Equal(have, want[machine]) {
			panic(fmt.Sprintf("machine %s was pushed %v, and is to have %v", machine, have, want[machine]))
		}
	}
}

// input is what a step without a memo would be given.
func (c *cell) input() control.Input { return c.master.Input(c.now) }

func (c *cell) described() status.DescribeInput {
	in := reconciler.Described(c.master, c.now)
	in.Reserved = c.in.Reserved // as Master.Snapshot has it
	return in
}

func (c *cell) status() status.Status { return *c.snapshot().Whole() }

// snapshot describes the cell with what was found out when it was described before, and
// holds that against what is found out again.
func (c *cell) snapshot() *status.Snapshot {
	fresh := status.Describe(c.described())
	if yes, _ := c.shared.Converged(c.described(), schema.JobName{}); yes != fresh.Converged {
		panic(fmt.Sprintf("converged is %t, and %t of who describes, too", fresh.Converged, yes))
	}
	s := c.describer.Describe(c.described())
	for _, s := range []*status.Snapshot{s, c.shared.Describe(c.described())} {
		if !reflect.DeepEqual(&fresh, s.Whole()) {
			want, _ := json.MarshalIndent(fresh, "", " ")
			got, _ := json.MarshalIndent(s.Whole(), "", " ")
			panic("what was described before has changed what is described:\n" + cmp.Diff(string(want), string(got)))
		}
	}
	holdPart(s)
	return s
}

// holdPart holds the part of s that is all of its jobs to the whole: it waits for what
// the cell waits for, in the same order, and for nothing else.
func holdPart(s *status.Snapshot) {
	every, err := schema.ParseSelector(schema.LabelUser)
	if err != nil {
		panic(err)
	}
	part, err := status.Group{Selector: every}.Of(s)
	if err != nil {
		return // there is no job
	}
	whole := s.Brief().Waiting
	for _, w := range part.Brief().Waiting {
		i := slices.Index(whole, w)
		if i < 0 {
			panic(fmt.Sprintf("all jobs wait for %q, the cell for %q", part.Brief().Waiting, s.Brief().Waiting))
		}
		whole = whole[i+1:]
	}
}

// join adds a machine with the given number of cores and GiB of memory.
func (c *cell) join(name string, cores, gib int64) []schema.Event {
	a := c.agent(name)
	if a == nil {
		a = agentOf(name, cores, gib)
		c.add(a)
	}
	if _, err := c.master.Join(a.info, c.now); err != nil {
		panic(err)
	}
	return c.carryOut()
}

// joinRack is join for a machine that says in which rack it is.
func (c *cell) joinRack(name, rack string, cores, gib int64) {
	a := agentOf(name, cores, gib)
	a.info.Attributes = map[string]string{"rack": rack}
	c.add(a)
	c.join(name, cores, gib)
}

func (c *cell) add(a *agent) {
	c.agents = append(c.agents, a)
	slices.SortFunc(c.agents, func(a, b *agent) int { return strings.Compare(a.info.Name, b.info.Name) })
}

// agentOf returns a machine with the given number of cores and GiB of memory.
func agentOf(name string, cores, gib int64) *agent {
	return &agent{tasks: map[uint64]*schema.TaskStatus{}, info: schema.MachineInfo{
		Name: name, Boot: "boot-1", Ports: schema.PortRange{First: 20000, Last: 20009},
		Capacity: schema.Resources{CPUMilli: cores * 1000, RAMBytes: gib << 30, DiskBytes: 100 << 30},
	}}
}

func (c *cell) agent(name string) *agent {
	for _, a := range c.agents {
		if a.info.Name == name {
			return a
		}
	}
	return nil
}

// exchange lets every machine that is not silent take its view and report.
func (c *cell) exchange() []schema.Event {
	views := model.Views(c.state)
	var events []schema.Event
	for _, a := range c.agents {
		if !a.silent {
			if !c.state.Recovering() && (c.state.Restored == nil || c.observed.HasReported(a.info.Name)) { // as package loop
				c.obey(a, views[a.info.Name].Assignments)
			}
			r := a.report()
			c.reported[a.info.Name] = r.Tasks
			events = append(events, c.observed.AddReport(r, c.now)...)
		}
	}
	return events
}

// obey starts and stops what the view says. A task whose first argument is
// "crash" fails for good, one with "sick" is not healthy.
func (c *cell) obey(a *agent, view []schema.Assignment) {
	assigned := map[uint64]bool{}
	for _, v := range view {
		assigned[v.Generation] = true
		s := a.tasks[v.Generation]
		if s == nil {
			c.pids++
			s = &schema.TaskStatus{
				Task: v.Task, Generation: v.Generation, State: schema.Running, Incarnation: 1, PID: 1000 + c.pids, StartedAt: c.now, Ports: v.Ports, Devices: v.Devices,
				Data: v.Data, Alloc: v.Alloc,
			}
			a.tasks[v.Generation] = s
		}
		s.Data = v.Data
		s.Brought = v.Bring
		if strings.HasPrefix(s.Note, schema.NoteNext) {
			s.Note = ""
		}
		if a.offline && len(v.Bring) > 0 {
			s.Brought, s.Note = nil, schema.NoteNext+"its image cannot be pulled"
		}
		command := strings.Join(v.Job.Task.Process.Command, " ")
		switch {
		case s.State == schema.Dead, v.Stop != nil && a.hangs:
		case v.Stop != nil:
			a.die(s, schema.Cause{Kind: v.Stop.Kind, Message: v.Stop.Message, At: c.now})
		case strings.Contains(command, "crash"):
			a.die(s, schema.Cause{Kind: schema.CauseFailed, Exit: &schema.Exit{Incarnation: 5, Code: 3, At: c.now}, At: c.now})
		case strings.Contains(command, "sick"):
			s.Health = schema.Unhealthy
		}
	}
	maps.DeleteFunc(a.tasks, func(g uint64, s *schema.TaskStatus) bool {
		return !assigned[g] && (s.End == nil && !a.hangs || s.End != nil && s.End.Kind != schema.CausePortInUse)
	})
}

// becomes has an agent offline, silent or hang, or ends that.
func (a *agent) becomes(word string) {
	switch word {
	case "offline", "online":
		a.offline = word == "offline"
	case "silent", "speak":
		a.silent = word == "silent"
	default:
		a.hangs = word == "hang"
	}
}

func (a *agent) die(s *schema.TaskStatus, cause schema.Cause) {
	s.State, s.PID, s.End = schema.Dead, 0, &cause
}

func (a *agent) report() schema.Report {
	r := schema.Report{Machine: a.info, BusyPorts: a.busy, Conditions: a.conditions}
	for _, g := range slices.Sorted(maps.Keys(a.tasks)) {
		r.Tasks = append(r.Tasks, *a.tasks[g])
		if s := a.tasks[g]; slices.Contains(a.relief, s.Task.Short()) && s.State != schema.Dead {
			if r.Overload == nil {
				r.Overload = &schema.Overload{Since: epoch, Suffers: a.suffers, Message: "its CPUs are 100% busy"}
			}
			r.Overload.Relief = append(r.Overload.Relief, schema.TaskRef{Task: s.Task, Generation: g})
		}
	}
	if r.Overload != nil && len(r.Overload.Relief) < len(a.relief) {
		r.Overload = nil // one has left: it is looked at again
	}
	return r
}

// overloads has the agent ask for relief, from now on: tasks that would relieve its machine,
// and perhaps for:TASK, the one that suffers.
func (a *agent) overloads(args []string) {
	a.relief, a.suffers = nil, schema.TaskName{}
	for _, arg := range args {
		if name, suffers := strings.CutPrefix(arg, "for:"); suffers {
			a.suffers, _ = schema.ParseTaskName("c/" + name)
		} else {
			a.relief = append(a.relief, arg)
		}
	}
}

// find returns what runs of a task, and where.
func (c *cell) find(name string) (*agent, *schema.TaskStatus) {
	for _, a := range c.agents {
		for _, g := range slices.Sorted(maps.Keys(a.tasks)) {
			if s := a.tasks[g]; s.Task.Short() == name && s.State != schema.Dead {
				return a, s
			}
		}
	}
	return nil, nil
}

// pkg returns a package of the given objects, each declared on a line of its
// own of DIR/x.cue.
func pkg(dir string, objects ...any) *schema.Package {
	p := &schema.Package{Dir: dir, Origins: map[schema.ObjectKey]schema.Position{}}
	for i, o := range objects {
		var key schema.ObjectKey
		switch o := o.(type) {
		case schema.Job:
			key = schema.ObjectKey{Kind: schema.KindJob, Name: o.ID().String()}
			if set, inside := o.HostSet(); inside {
				o.Priority = schema.PriorityNamed
				p.References = append(p.References, schema.Reference{
					From: key, Field: "allocset", To: schema.ObjectKey{Kind: schema.KindAllocSet, Name: set.String()},
					At: schema.Position{Path: dir + "/x.cue", Line: i + 1, Column: 50},
				})
			}
			p.Objects.Jobs = append(p.Objects.Jobs, o)
		case schema.AllocSet:
			p.Objects.AllocSets = append(p.Objects.AllocSets, o)
			key = schema.ObjectKey{Kind: schema.KindAllocSet, Name: o.ID().String()}
		case namedJob:
			o.Priority = schema.PriorityNamed
			p.Objects.Jobs = append(p.Objects.Jobs, o.Job)
			key = schema.ObjectKey{Kind: schema.KindJob, Name: o.ID().String()}
			p.References = append(p.References, schema.Reference{
				From: key, Field: "priority", To: schema.ObjectKey{Kind: schema.KindPriority, Name: o.priority},
				At: schema.Position{Path: dir + "/x.cue", Line: i + 1, Column: 40},
			})
		case schema.Machine:
			p.Objects.Machines = append(p.Objects.Machines, o)
			key = schema.ObjectKey{Kind: schema.KindMachine, Name: o.Cell + "/" + o.Name}
		case schema.NamedPriority:
			p.Objects.Priorities = append(p.Objects.Priorities, o)
			key = schema.ObjectKey{Kind: schema.KindPriority, Name: o.Name}
		case schema.Quota:
			p.Objects.Quotas = append(p.Objects.Quotas, o)
			key = schema.ObjectKey{Kind: schema.KindQuota, Name: o.Name}
		case schema.Tenant:
			p.Objects.Tenants = append(p.Objects.Tenants, o)
			key = schema.ObjectKey{Kind: schema.KindTenant, Name: o.Name}
		case schema.Cell:
			p.Objects.Cells = append(p.Objects.Cells, o)
			key = schema.ObjectKey{Kind: schema.KindCell, Name: o.Name}
		default:
			panic(fmt.Sprintf("object %T", o))
		}
		p.Origins[key] = schema.Position{Path: strings.TrimPrefix(dir+"/x.cue", "./"), Line: i + 1, Column: 1}
	}
	slices.SortFunc(p.References, func(a, b schema.Reference) int { return a.From.Compare(b.From) })
	return p
}

// namedJob is a job that has its priority by name.
type namedJob struct {
	schema.Job
	priority string
}

// good is a package that compiles, bad one that does not.
func good(p *schema.Package) schema.CompiledPackage {
	return schema.CompiledPackage{Dir: p.Dir, Package: p, Digest: schema.DigestOf(p)}
}

func bad(dir string) schema.CompiledPackage {
	return schema.CompiledPackage{Dir: dir, Diagnostics: []schema.Diagnostic{{
		Severity: schema.Error, Rule: schema.RuleSyntax, Position: schema.Position{Path: dir + "/x.cue", Line: 7, Column: 3}, Message: "expected label or ':'", Hint: "check the syntax",
	}}}
}

func compiled(commit string, packages ...schema.CompiledPackage) schema.Compiled {
	return schema.Compiled{Commit: commit, Packages: packages}
}

// service is a job of the given tasks that serves v.
func service(user, name string, tasks int, v string) schema.Job {
	return schema.Job{
		Name: name, User: user, Cell: "c", Kind: schema.Service, Priority: 200, Tasks: tasks,
		Task: schema.TaskSpec{
			Process:   schema.Process{Command: []string{"serve", v}},
			Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 1000, RAMBytes: 1 << 30, DiskBytes: 1 << 30}, Ports: []string{"http"}},
		},
		Update: schema.UpdatePolicy{MaxParallel: 1},
	}
}

// quota is a quota of tasks at production, and ample of all else.
func newQuota(name, user string, tasks int) schema.Quota {
	return schema.Quota{
		Name: name, User: user, Cell: "c", Band: schema.BandProduction, Tasks: tasks,
		Resources: schema.Resources{CPUMilli: 1000_000, RAMBytes: 1 << 50, DiskBytes: 1 << 50},
	}
}

// A snapshot of a master that reclaims says what is held back for tasks, and of one that does not
// that it is their limits.
func TestSnapshotHasReservations(t *testing.T) {
	t.Parallel()
	m, err := reconciler.NewMaster(reconciler.MasterConfig{Cell: "c"}, nil, epoch)
	if err != nil {
		t.Fatal(err)
	}
	if of := m.Snapshot(epoch).Reserved; of != nil {
		t.Errorf("%v is held back, and nothing is reclaimed", of)
	}
	if m.Reclaim(); m.Snapshot(epoch).Reserved == nil {
		t.Error("nothing is known of what is held back")
	}
}

// devicesOf reads groups of devices: KIND:MODEL:COUNT, and attributes as :NAME~VALUE.
func devicesOf(words []string) (out []schema.DeviceGroup) {
	for _, w := range words {
		f := strings.Split(w, ":")
		g := schema.DeviceGroup{Kind: f[0], Model: f[1], Attributes: map[string]string{}}
		g.Count, _ = strconv.Atoi(f[2])
		for _, of := range f[3:] {
			name, value, _ := strings.Cut(of, "~")
			g.Attributes[name] = value
		}
		out = append(out, g)
	}
	return out
}

// reclaims has the cell give to others what tasks do not use, or with an argument each task use so much
// CPU now.
func (c *cell) reclaims(cpuMilli []string) string {
	if len(cpuMilli) == 0 {
		c.master.Reclaim()
		return ""
	}
	n, _ := strconv.ParseInt(cpuMilli[0], 10, 64)
	for _, a := range c.agents {
		u := schema.MachineUsage{Machine: a.info.Name, At: c.now}
		for _, g := range slices.Sorted(maps.Keys(a.tasks)) {
			st := a.tasks[g]
			u.Tasks = append(u.Tasks, schema.TaskUsage{Task: st.Task, Generation: g, Incarnation: st.Incarnation, Usage: schema.Usage{CPUMilli: n, RAMBytes: 1}})
		}
		c.master.Usage(c.master.EpochOf(a.info.Name), &u, c.now)
	}
	return ""
}
