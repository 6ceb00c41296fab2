package snapshot

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Kept is the snapshot that one step leaves to the next one, and what it was made of. It
// goes with one State and one Observed. The zero value is empty.
type Kept struct {
	snapshot *placement.Snapshot
	chunks   map[model.ChunkName]*schema.Chunk // whose tasks the snapshot has
	spans    map[schema.JobName]int            // of chunks: one more than the greatest number
	machines map[string]seenMachine
	// restless are the machines that may become others by themselves, or by what becomes
	// of tasks.
	restless map[string]bool
	changes  int                              // see facts.MachinesChangedSince
	written  int                              // see model.State.WrittenSince
	drafted  []model.ChunkName                // as the step before has left them, which need not be stored
	asks     map[schema.Digest]*placement.Ask // of tasks by their data, which those of a job share
	runs     keptRuns
	gangs    facts.GangIndex
	names    int                 // that the snapshot knew after the first step that it was there for, see worn
	reserved int                 // see Reservations.Since
	ranges   [2]netip.Prefix     // of addresses for tasks that the cell had when all this was made
	network  *schema.CellNetwork // that the cell had when asks were made
	empties  bool                // the snapshot is placed on as of a cell that empties machines
}

// Cell is a cell as placement sees it. Its snapshot follows what a draft changes.
type Cell struct {
	facts *facts.Facts
	kept  *Kept
	ready bool // kept is as the facts are
	// reserved is what tasks are held back, nil for their limits.
	reserved Reservations
	until    facts.Until
	mayRun   map[*schema.Job][]string // see Eligible
	mayStay  map[*schema.Job][]string // see MayStay
	runs     runs
	gangs    *facts.Gangs
	changes  int // of tasks' records
	// protects says that the snapshot knows which tasks may not be preempted.
	protects bool
	// vacated are machines to be looked at again, see left.
	vacated []string
	// away are tasks that are taken to have left their machines, see WhileLeft.
	away map[schema.TaskName]bool
	// inside is what runs in allocs, see insideOf; nil until it is asked for.
	inside map[On][]On
	// holders are those for which machines are held, see holdersOf; nil until it is asked for.
	holders map[string][]schema.TaskName
	// occupied is the memory of occupancyOf, which is asked for many jobs.
	occupied occupancy
}

// New returns the cell of some facts. kept may be nil.
func New(f *facts.Facts, kept *Kept) *Cell {
	if kept == nil {
		kept = &Kept{}
	}
	if network := f.Desired.Policy.Network; network != kept.network {
		kept.asks, kept.network = nil, network // new tasks may ask for other machines
	}
	c := &Cell{facts: f, kept: kept, runs: runs{facts: f, kept: kept}, mayRun: map[*schema.Job][]string{}, mayStay: map[*schema.Job][]string{}, gangs: facts.GangsOf(f, &kept.gangs)}
	c.exchangeDrafted()
	return c
}

// exchangeDrafted has the snapshot refer to what is stored of the chunks that the step before
// has drafted, where that is the same: it may be long until Snapshot is called again.
func (c *Cell) exchangeDrafted() {
	m := c.kept
	m.drafted = slices.DeleteFunc(m.drafted, func(name model.ChunkName) bool {
		was, is := m.chunks[name], c.facts.Chunk(name)
		if was == is {
			return true
		}
		same := true
		model.EachTask(was, is, func(was, is *schema.TaskRecord) {
			same = same && was != nil && is != nil && model.SameAssignment(was, is)
		})
		if same {
			m.keepChunk(name, is)
		}
		return same
	})
}

// seenMachine is a machine of the snapshot, and what it was made of.
type seenMachine struct {
	record  *schema.MachineRecord
	report  uint64 // number of its last, 0 if there is none: one that is over is not kept
	content uint64 // number of what it holds
	desired *intent.Desired
	up      bool
	again   time.Time // when a port of it may be tried again, zero if never
	machine placement.Machine
	// superseded says that generations are alive there which are assigned to it no more.
	superseded bool
}

// Snapshot returns the cell as placement sees it, with what is about to be stored. A task
// that is being stopped holds what it has until its machine has said that it is dead.
func (c *Cell) Snapshot() *placement.Snapshot {
	if !c.ready {
		c.bringUpToDate()
		c.ready = true
	}
	c.lookAgain()
	if !c.protects {
		is, version := c.gangs.Protected()
		c.kept.snapshot.SetProtected(version, is)
		c.protects = true
	}
	return c.kept.snapshot
}

// Admitted is called when other data of jobs has been admitted: it says which tasks may not be preempted.
func (c *Cell) Admitted() { c.protects = false }

// bringUpToDate has the snapshot be as the facts are.
func (c *Cell) bringUpToDate() {
	if ranges := c.ranges(); ranges != c.kept.ranges {
		*c.kept = Kept{ranges: ranges, network: c.kept.network, runs: c.kept.runs, gangs: c.kept.gangs} // tasks ask for other machines now, and machines have not what they had
	}
	changed, changes, known := c.facts.MachinesChangedSince(c.kept.changes)
	if !known {
		changed = c.facts.Machines()
	}
	if changed = slices.Compact(slices.Sorted(slices.Values(changed))); !c.mayFollow(changed) || c.kept.worn() {
		c.build()
	} else {
		for _, name := range changed {
			c.updateMachine(name)
		}
		for _, name := range slices.Sorted(maps.Keys(c.kept.restless)) {
			c.updateMachine(name)
		}
		c.updateTasks()
		c.updateReserved()
		if c.kept.empties != c.empties() {
			c.configure()
		}
	}
	c.kept.changes = changes
}

// ranges are those of the cell's network for tasks.
func (c *Cell) ranges() (of [2]netip.Prefix) {
	if n := c.facts.Desired.Policy.Network; n != nil {
		of = [2]netip.Prefix{n.Range, n.Range6}
	}
	return of
}

// lookAgain looks at the machines that tasks with devices have left.
func (c *Cell) lookAgain() {
	for _, name := range c.vacated {
		c.updateMachine(name)
	}
	c.vacated = c.vacated[:0]
}

// wornNames is how many names a snapshot may know in any case.
const wornNames = 1024

// worn reports whether most names that the snapshot knows may be of what has gone: of jobs,
// their selectors, images, machines. A cell that runs for years has them come and go.
func (m *Kept) worn() bool {
	return m.names > 0 && m.snapshot.Names() > 2*m.names+wornNames
}

// Until returns until when the machines of the snapshot are as they are.
func (c *Cell) Until() facts.Until { return c.until }

// mayFollow reports whether the snapshot can take over what has become of the changed machines:
// it has all others, with the devices by which tasks' devices are counted, and no task is
// said to be on one that comes.
func (c *Cell) mayFollow(changed []string) bool {
	if c.kept.snapshot == nil {
		return false
	}
	come := map[string]bool{}
	gone := 0
	for _, name := range changed {
		seen, had := c.kept.machines[name]
		switch is := c.facts.Base.Machines[name]; {
		case is == nil && had:
			gone++
		case is != nil && !had:
			come[name] = true
		case had && !slices.EqualFunc(seen.record.Devices, is.Devices, schema.DeviceGroup.Equal):
			return false
		}
	}
	return len(c.kept.machines)+len(come)-gone == len(c.facts.Machines()) && (len(come) == 0 || !c.anyTaskOn(come))
}

// anyTaskOn reports whether a task that the snapshot would have is on one of some machines.
func (c *Cell) anyTaskOn(machines map[string]bool) bool {
	for _, chunk := range c.kept.chunks {
		for i := range chunk.Tasks {
			if machines[chunk.Tasks[i].Machine] {
				return true
			}
		}
	}
	return false
}

// build makes the snapshot from nothing.
func (c *Cell) build() {
	names := c.facts.Machines()
	m := Kept{
		chunks: map[model.ChunkName]*schema.Chunk{}, spans: map[schema.JobName]int{},
		machines: make(map[string]seenMachine, len(names)), restless: map[string]bool{},
	}
	_, m.written, _ = c.facts.Base.WrittenSince(0)
	machines := make([]placement.Machine, 0, len(names))
	for _, name := range c.facts.Machines() {
		seen := c.seen(name)
		m.keepMachine(name, seen)
		machines = append(machines, seen.machine)
	}
	chunks, most := c.facts.ChunkNames(), 0
	for _, name := range chunks {
		chunk := c.facts.Chunk(name)
		m.keepChunk(name, chunk)
		most += len(chunk.Tasks)
	}
	tasks := make([]placement.Task, 0, most)
	for _, name := range chunks {
		chunk := m.chunks[name]
		for i := range chunk.Tasks {
			if chunk.Tasks[i].Machine != "" {
				tasks = append(tasks, c.taskOf(name.Job, &chunk.Tasks[i]))
			}
		}
	}
	m.snapshot = placement.NewSnapshot(machines, tasks)
	if c.reserved != nil {
		_, m.reserved, _ = c.reserved.Since(0)
	}
	m.asks, m.ranges, m.network, m.runs, m.gangs = c.kept.asks, c.kept.ranges, c.kept.network, c.kept.runs, c.kept.gangs
	*c.kept = m
	c.configure()
}

// emptyBegin and emptyTight are placement.Weights.Begin and Tight of a cell that empties machines: as
// much as all that is about packing, so that nothing begins a machine which is empty while others have
// room; and of these the one that is used more is taken, which is not to be emptied. Measured: see
// docs/performance-placement.md.
const (
	emptyBegin = 0.15
	emptyTight = 0.05
)

// empties reports whether machines of the cell are emptied.
func (c *Cell) empties() bool { return c.facts.Desired.Policy.Moves().EmptyBelow > 0 }

// configure says how the snapshot is placed on.
func (c *Cell) configure() {
	c.kept.empties = c.empties()
	c.kept.snapshot.Configure(c.options(true))
}

func (c *Cell) options(preempt bool) placement.Options {
	return placement.Options{Preempt: preempt, Graceful: true, Weights: c.weights()}
}

// weights returns those by which machines are chosen, nil for the default.
func (c *Cell) weights() *placement.Weights {
	if !c.empties() {
		return nil
	}
	w := placement.DefaultWeights()
	w.Begin, w.Tight = emptyBegin, emptyTight
	return &w
}

// PreemptNone has no task of the snapshot make room for another one.
func (c *Cell) PreemptNone() { c.Snapshot().Configure(c.options(false)) }

// keepMachine remembers what a machine was made of.
func (m *Kept) keepMachine(name string, seen seenMachine) {
	m.machines[name] = seen
	if seen.superseded || !seen.again.IsZero() {
		m.restless[name] = true
	} else {
		delete(m.restless, name)
	}
}

// keepChunk remembers a chunk whose tasks the snapshot has, or that it has none with nil.
func (m *Kept) keepChunk(name model.ChunkName, chunk *schema.Chunk) {
	if chunk == nil {
		delete(m.chunks, name)
		return
	}
	m.chunks[name] = chunk
	m.spans[name.Job] = max(m.spans[name.Job], name.Number+1)
}

// updateMachine takes over what changed of a machine, or that it has come or gone.
func (c *Cell) updateMachine(name string) {
	was, had := c.kept.machines[name]
	if c.facts.Base.Machines[name] == nil {
		if had {
			delete(c.kept.machines, name)
			delete(c.kept.restless, name)
			c.kept.snapshot.RemoveMachine(name)
		}
		return
	}
	if was.record == c.facts.Base.Machines[name] && was.report == c.reportOf(name) && was.content == c.contentOf(name) && was.up == c.facts.IsUp(name) &&
		!was.superseded && // else its ports and devices are free, or a task's, by what becomes of records
		was.desired == c.facts.Desired && (was.again.IsZero() || c.facts.Now.Before(was.again)) {
		c.until = c.until.Or(c.facts.At(was.again))
		return
	}
	is := c.seen(name)
	c.kept.keepMachine(name, is)
	if !had || !reflect.DeepEqual(was.machine, is.machine) {
		c.kept.snapshot.SetMachine(is.machine)
	}
}

// updateTasks takes over what changed of tasks.
func (c *Cell) updateTasks() {
	names := append(slices.Clone(c.kept.drafted), c.facts.ChangedChunks()...)
	jobs, next, ok := c.facts.Base.WrittenSince(c.kept.written)
	if c.kept.written = next; !ok {
		jobs = slices.AppendSeq(c.facts.Base.JobsWithChunks(), maps.Keys(c.kept.spans))
	}
	for _, job := range jobs {
		for n := range max(c.facts.Span(job), c.kept.spans[job]) {
			names = append(names, model.ChunkName{Job: job, Number: n})
		}
		if c.facts.Span(job) == 0 {
			delete(c.kept.spans, job)
		}
	}
	slices.SortFunc(names, model.ChunkName.Compare)
	for _, name := range slices.Compact(names) {
		if is := c.facts.Chunk(name); is != c.kept.chunks[name] || c.facts.ChunkChanged(name) {
			c.compare(name, is)
		}
	}
}

// compare takes over a chunk, of which the snapshot may have an older version.
func (c *Cell) compare(name model.ChunkName, is *schema.Chunk) {
	was := c.kept.chunks[name]
	c.kept.keepChunk(name, is)
	model.EachTask(was, is, func(was, is *schema.TaskRecord) { c.change(name.Job, was, is) })
}

// Leave has the snapshot kept for the next step: as it is now, without what was only
// claimed.
func (c *Cell) Leave() {
	if !c.ready {
		return
	}
	c.kept.snapshot.ClearClaims()
	c.kept.snapshot.SetBudgets(nil)
	c.kept.snapshot.SetHit(nil)
	c.kept.snapshot.SetProtected(0, nil)
	c.kept.snapshot.SetTimes(time.Time{}, nil)
	c.kept.snapshot.SetParallel(nil)
	if c.kept.names == 0 { // with those of tasks that wait
		c.kept.names = c.kept.snapshot.Names()
	}
	c.kept.drafted = c.facts.ChangedChunks()
	for _, name := range c.kept.drafted {
		c.kept.keepChunk(name, c.facts.Chunk(name))
	}
}

// seen looks at a machine.
func (c *Cell) seen(name string) seenMachine {
	out := seenMachine{
		record: c.facts.Base.Machines[name], report: c.reportOf(name), content: c.contentOf(name), desired: c.facts.Desired, up: c.facts.IsUp(name),
	}
	superseded := c.superseded(name)
	out.machine, out.again = c.machineOf(name, superseded)
	out.superseded = len(superseded) > 0
	return out
}

// reportOf returns the number of a machine's last report, 0 if there is none.
func (c *Cell) reportOf(name string) uint64 {
	if h := c.facts.Observed.Last(name); h != nil {
		return h.Number
	}
	return 0
}

// contentOf returns the number of what a machine holds, 0 if it has not said.
func (c *Cell) contentOf(name string) uint64 {
	_, number := c.facts.Observed.Content(name)
	return number
}

// machineOf returns a machine as placement sees it, on which superseded generations are alive, and when
// a port of it may be tried again.
func (c *Cell) machineOf(name string, superseded []*schema.TaskStatus) (m placement.Machine, again time.Time) {
	info := c.facts.Base.Machines[name].MachineInfo
	declared := c.facts.MachineSpec(name)
	m = placement.Machine{
		Name: name, Capacity: info.Capacity, Ports: info.Ports, Attributes: declared.Attributes,
		Up: c.facts.IsUp(name), Cordoned: declared.Closed(),
	}
	if h := c.facts.Observed.Last(name); h != nil {
		m.Overloaded = h.Report.Overload != nil
	}
	if info.Attributes[schema.HasOwnNetwork] == "true" {
		m.Attributes = maps.Clone(m.Attributes)
		m.Attributes[schema.HasSubnet] = strconv.FormatBool(c.facts.Desired.Policy.Network.Gives(c.facts.Base.Machines[name].Subnets))
	}
	for _, key := range slices.Sorted(maps.Keys(declared.Taints)) {
		t := declared.Taints[key]
		m.Taints = append(m.Taints, placement.Taint{Key: key, Value: t.Value, Users: t.Users})
	}
	for _, g := range info.Devices {
		m.Devices = append(m.Devices, placement.Device(g))
	}
	for _, condition := range c.facts.Observed.Conditions(name) {
		m.Conditions = append(m.Conditions, condition.Kind)
	}
	m.Packages, _ = c.facts.Observed.Content(name)
	m.BusyPorts, again = c.facts.Observed.BusyPorts(name, c.facts.Now)
	c.until = c.until.Or(c.facts.At(again))
	for _, t := range superseded {
		m.BusyDevices = append(m.BusyDevices, usesOf(c.facts.Base.Machines[name], t.Devices)...)
		if t.Own != nil { // its ports are none of the machine's
			continue
		}
		for _, p := range t.Ports {
			m.BusyPorts = append(slices.Clip(m.BusyPorts), p.Port)
		}
	}
	return m, again
}

// taskOf returns a task that has a machine as placement sees it.
func (c *Cell) taskOf(job schema.JobName, t *schema.TaskRecord) placement.Task {
	data := c.facts.Data(t.Data)
	a := c.ofAll(c.askOf(t.Data), job, data)
	p := placement.Task{
		Name: job.Task(t.Index), Machine: t.Machine, Priority: data.Priority, Limit: a.Limit, Ports: t.Ports, Since: t.At,
		Stopping: t.Stop != nil, Ask: a, Devices: usesOf(c.facts.Base.Machines[t.Machine], t.Devices), IsAlloc: a.IsAlloc, Together: data.Together, Behind: t.Behind, Gang: data.Gang,
	}
	if c.reserved != nil {
		p.Reservation = c.reserved.Reservation(t.Generation)
	}
	if t.OwnNetwork {
		p.Ports = nil
	}
	if t.OwnNetwork && t.Alloc != nil {
		p.AllocPorts = t.Ports
	}
	if t.Alloc != nil {
		p.Alloc = t.Alloc.Of(job)
	}
	return p
}

// askOf returns what the tasks of a job that run some data have asked for; the name is not
// theirs.
func (c *Cell) askOf(data schema.Digest) *placement.Ask {
	m := c.kept
	if a := m.asks[data]; a != nil {
		return a
	}
	return c.keepAsk(data, c.facts.Data(data))
}

// wanted returns what a task that asks wants by its job alone; the name is not its own. Tasks of the
// same data share it.
func (c *Cell) wanted(a Ask) *placement.Ask {
	if kept := c.kept.asks[a.Data]; kept != nil {
		return kept
	}
	if a.Data == "" {
		return c.askFor(a.Job)
	}
	return c.keepAsk(a.Data, a.Job)
}

// askFor returns what the tasks of a job ask for; the name is not theirs.
func (c *Cell) askFor(job *schema.Job) *placement.Ask {
	a := bareAsk(job.ID().Task(0), job, c.facts.Desired.Policy.Network)
	a.Relations = relationsOf(job)
	return &a
}

// keepAsk remembers what tasks ask for that run some data; their names are not it.
func (c *Cell) keepAsk(data schema.Digest, job *schema.Job) *placement.Ask {
	m := c.kept
	if m.asks == nil || len(m.asks) > 2*len(c.facts.Base.Data)+1024 { // most are of data that is gone
		m.asks = map[schema.Digest]*placement.Ask{}
	}
	m.asks[data] = c.askFor(job)
	return m.asks[data]
}

// Changed takes over that the record of a task is about to change; nil stands for none.
func (c *Cell) Changed(job schema.JobName, was, is *schema.TaskRecord) {
	c.changes++
	if hostOf(job, was) != hostOf(job, is) {
		c.inside = nil
	}
	if c.ready {
		c.change(job, was, is)
	}
}

// Changes counts what Changed has taken over.
func (c *Cell) Changes() int { return c.changes }

// change takes over the change of a task's record.
func (c *Cell) change(job schema.JobName, was, is *schema.TaskRecord) {
	if was != nil && was.Machine != "" && (is == nil || is.Machine != was.Machine) {
		c.kept.snapshot.RemoveTask(job.Task(was.Index), was.Machine, 0)
	}
	if was != nil && was.Machine != "" && (is == nil || is.Machine != was.Machine || is.Generation != was.Generation) {
		c.left(was)
	}
	if is != nil && is.Machine != "" && (was == nil || !model.SameAssignment(was, is)) {
		c.kept.snapshot.SetTask(c.taskOf(job, is))
	}
}

// left has a machine looked at again on which a generation with ports or devices is assigned no more, as soon
// as the record says so: in its last report it may go on, and hold them. That is so of one that was
// given up, and of one whose task goes on elsewhere since it was adopted there.
func (c *Cell) left(t *schema.TaskRecord) {
	if seen, ok := c.kept.machines[t.Machine]; ok && len(t.Devices)+len(t.Ports) > 0 {
		seen.report = 0
		c.kept.machines[t.Machine], c.kept.restless[t.Machine] = seen, true
		c.vacated = append(c.vacated, t.Machine)
	}
}

// Reserve has the cell hold back what of says, nil for all limits. It comes before Snapshot.
func (c *Cell) Reserve(of Reservations) { c.reserved = of }

// Reserved returns a number that is another one when what is held back for a task may be: 0 if
// that is the limit of each.
func (c *Cell) Reserved() (number int) {
	if c.reserved != nil {
		_, number, _ = c.reserved.Since(0)
	}
	return number
}

// updateReserved takes over what changed of reservations.
func (c *Cell) updateReserved() {
	if c.reserved == nil {
		return
	}
	changed, next, ok := c.reserved.Since(c.kept.reserved)
	c.kept.reserved = next
	if !ok {
		c.build()
		return
	}
	seen := make(map[schema.TaskName]bool, len(changed))
	for _, name := range changed {
		if t := c.facts.Task(name); !seen[name] && t != nil && t.Machine != "" {
			seen[name] = true
			c.kept.snapshot.SetTask(c.taskOf(name.JobName, t))
		}
	}
}
