package placement

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/placement/layers"
	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/placement/mix"
	"github.com/musterhq/muster/placement/packages"
	"github.com/musterhq/muster/placement/ports"
	"github.com/musterhq/muster/schema"
)

// dims is the number of scalar dimensions, see mix.Dims.
const dims = mix.Dims

type vector [dims]int64

func vectorOf(r schema.Resources) vector { return vector{r.CPUMilli, r.RAMBytes, r.DiskBytes} }

func (v vector) resources() schema.Resources {
	return schema.Resources{CPUMilli: v[0], RAMBytes: v[1], DiskBytes: v[2]}
}

// Snapshot is the cell as placement sees it: machines and what they hold. It
// is kept from pass to pass and updated with what changed.
type Snapshot struct {
	options Options
	weights Weights
	content
	learnt

	spare    []int32                     // slots of removed machines
	unused   []int32                     // of tasks
	parallel func(n int, do func(i int)) // nil for none, see SetParallel
	effort
	largest [dims + 1]int64 // of any machine there was, devices last

	// log lists the slots that changed, oldest first; entry i has the
	// absolute position trimmed+i. Scores are brought up to date from it.
	log        []int32
	trimmed    int
	shades     int                         // entries that there ever were for what is held only, see shade
	epoch      int                         // counts what makes all scores void
	ofPriority [schema.MaxPriority + 1]int // tasks held, by priority
	removals   int                         // counts the tasks that went
	shapes     int                         // counts what changes of which tasks machines suit
	passes     int
	forked     bool // it began as a fork
	small      bool // the pass is so small that it examines all machines for each ask
	disruption
	holding
	fill
	burden burden
}

// effort counts what was done to decide.
type effort struct {
	// looked counts the machines that lone asks looked at ahead of their turn, and
	// lookedAgain those at which they did so again, since they had changed: the conflicts.
	looked, lookedAgain int
	// searches counts how often places were searched for that go together, and attempts the orders
	// that were tried for these.
	searches, attempts int
	// weighed counts the machines of which it was asked what would have to be evicted there, and
	// solved how often the least eviction on one was searched for.
	weighed, solved int
}

// burden is what the tasks of a cell want together, by their limits. Those in allocs are left
// out: they take what is the alloc's.
type burden struct {
	tasks int64
	limit vector
	milli int64 // thousandths of devices
	// mean is the size of the mean task, see mix.Typical.Size, when it was last found out; 0
	// for none.
	mean float32
}

// count takes a task into account (sign 1), or out of it (sign -1).
func (b *burden) count(t *task, sign int64) {
	if t.wants.set != 0 {
		return
	}
	b.tasks += sign
	for d, v := range t.limit {
		b.limit[d] += sign * v
	}
	for _, u := range t.devices {
		b.milli += sign * int64(u.Milli)
	}
}

// fill is how much the machines have that are up, and how much of it is used. What
// others have is of no use, and makes no difference.
type fill struct {
	machines             int64
	having               [dims]int64 // machines that have any of it
	capacity, used       vector
	devices, devicesFree int64 // thousandths
}

// count takes a machine that is up into account (sign 1), or out of it (sign -1); what is
// used of it follows when it is touched.
func (f *fill) count(n *node, r *row, sign int64) {
	if r.state != stateUp {
		return
	}
	f.machines += sign
	for d, v := range vectorOf(n.Capacity) {
		f.capacity[d] += sign * v
		if v > 0 {
			f.having[d] += sign
		}
		f.used[d] -= r.counted[d]
	}
	f.devices += sign * int64(DeviceMilli*len(n.devices))
	f.devicesFree -= int64(r.devices)
	r.counted, r.devices = vector{}, 0
}

// use takes into account what is used of a machine now. Its devices had so much free.
func (f *fill) use(n *node, r *row, was int32) {
	if r.state != stateUp {
		return
	}
	f.devicesFree += int64(r.devices - was)
	for d, v := range vectorOf(n.Capacity) {
		used := v - r.byReserv[d]
		f.used[d] += used - r.counted[d]
		r.counted[d] = used
	}
}

// content is what a snapshot holds. It shares it with its forks, see Fork.
type content struct {
	slots  layers.Index[string, int32] // machine name → slot
	nodes  layers.Table[node]          // by slot
	rows   layers.Table[row]           // by slot
	jobIDs layers.Index[schema.JobName, int32]
	jobs   layers.Table[job]
	tasks  layers.Table[task]
	here   layers.Index[uint64, int32] // tasks of a job on a machine, see together
	// stopping is how many of them are.
	stopping layers.Index[uint64, int32]
	claims   layers.Index[uint64, int32] // tasks by job and index, see Claim
	packages packages.Held
	gangs    gangs
	kinds    deviceKinds // device kinds and models
	kindred  kindred     // what relations say
	sharing  *sharing    // nil if there is no fork
	copied   *sharing    // what it shared before it took a copy
}

// learnt is what a snapshot has found out of its content, to be found out again
// when it is lost. Nothing of it is shared that is written to.
type learnt struct {
	attributes map[string]*layout.Column
	// reshapes counts what makes all tallies void.
	reshapes int
	layouts  map[string]*layout.Layout
	peaks    []*layout.Peaks // of some of the layouts, see peaksFor
	members  map[*layout.Column]*layout.Members
	favours  favours
	most     *vector // the largest capacity of any machine, see wantsBeyond; nil before it is asked for
	typical  mix.Typical
	classes  map[string]*class
	rests    map[string]*Ask  // see restOf
	stuck    map[crowd]*stuck // gangs that found no room
	// remembered is what the classes keep, in candidates; see classBudget.
	remembered int
	scratch    []byte
	scored     []Score // to be given out
	slab       int     // how many were made at once, see scoreOf
}

// row is what a scan over the machines reads of one. It fills two cache lines: what
// check reads is in the first, what only the score does in the second.
type row struct {
	byLimit     vector // capacity less the limits of all tasks
	byReserv    vector // capacity less their reservations
	ports       int32  // free ports
	version     uint32 // counts the changes of a machine
	heldAt      int16  // priority for which a machine is held, or -1
	minPriority int16  // lowest priority that its conditions let in
	state       uint8
	idle        bool // next to nothing of it is used
	overloaded  bool
	empty       bool // it has no task but of jobs that are everywhere

	prodCPU int64             // limits of prod tasks
	unit    [dims + 1]float32 // direction of what is free, length 1; devices last
	worth   float32           // of what is free, see typical.value
	fits    uint32            // typical asks that fit, as bits
	devices int32             // free thousandths of all devices
	counted vector            // what of the machine is counted in Snapshot.used
	claims  int32             // how many of its tasks are claims, but for those of ClaimBack
}

// What stands in row.state.
const (
	stateUp uint8 = iota
	stateDraining
	stateCordoned
	stateDown
	stateGone // the slot is spare
)

// node is what a scan rarely reads of a machine.
type node struct {
	Machine
	hash    uint64 // of its name
	first   int32  // of its tasks, or -1
	ports   ports.Book
	devices []device.Device
	holds   []int32 // packages, sorted
}

// NewSnapshot returns the snapshot of the given machines and tasks. A task on
// a machine that is not listed is left out.
func NewSnapshot(machines []Machine, tasks []Task) *Snapshot {
	s := &Snapshot{
		weights: DefaultWeights(),
		content: content{
			slots: layers.NewIndex[string, int32](len(machines)), nodes: layers.Table[node]{Detach: (*node).detach},
			jobIDs: layers.NewIndex[schema.JobName, int32](0), here: layers.NewIndex[uint64, int32](len(tasks)), stopping: layers.NewIndex[uint64, int32](0),
			claims: layers.NewIndex[uint64, int32](0), packages: packages.NewHeld(), kinds: newDeviceKinds(),
			kindred: newKindred(), gangs: newGangs(),
		},
		learnt: learnt{
			attributes: map[string]*layout.Column{}, layouts: map[string]*layout.Layout{}, rests: map[string]*Ask{}, classes: map[string]*class{},
		},
		disruption: disruption{budgets: map[int32]int{}, hit: map[int32]int{}},
	}
	s.kindred.column = s.column
	// Slots follow the layout of the usual class, so that a scan reads memory
	// in order.
	sorted := slices.Clone(machines)
	slices.SortFunc(sorted, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(a.Attributes[DefaultSpread], b.Attributes[DefaultSpread]), cmp.Compare(a.Name, b.Name))
	})
	s.nodes.Reserve(len(machines))
	s.tasks.Reserve(len(tasks))
	for _, m := range sorted {
		s.SetMachine(m)
	}
	for _, allocs := range []bool{true, false} { // a task needs its alloc to be there
		for i := range tasks {
			if tasks[i].IsAlloc != allocs {
				continue
			}
			if slot, ok := s.slots.Get(tasks[i].Machine); ok {
				s.hold(s.taskOf(tasks[i], slot))
			}
		}
	}
	for slot := range s.nodes.Len() {
		s.touch(slot)
	}
	return s
}

// Configure sets the options of the passes that follow.
func (s *Snapshot) Configure(o Options) {
	s.options = o
	s.weights = DefaultWeights()
	if o.Weights != nil {
		s.weights = *o.Weights
	}
	s.forget()
}

// SetPolicy has a policy choose from now on. It costs nothing if that is the one that does.
func (s *Snapshot) SetPolicy(p Policy) {
	if s.options.Policy != p {
		s.options.Policy = p
		s.forget()
	}
}

// forget voids all that is remembered between passes.
func (s *Snapshot) forget() {
	s.epoch++
	s.peaks, s.remembered = nil, 0
	s.favours.forget()
	s.most = nil
	clear(s.classes)
	clear(s.members)
}

// Len returns the number of machines.
func (s *Snapshot) Len() int { return s.slots.Len() }

// SetMachine adds a machine or takes over what changed of it. What the
// machine holds stays.
func (s *Snapshot) SetMachine(m Machine) {
	s.merge()
	slot, known := s.slots.Get(m.Name)
	layouts := s.layouts
	if !known {
		slot = s.newSlot()
		s.slots.Set(m.Name, slot)
		s.nodes.Edit(slot).hash = layout.Hash(m.Name)
		s.layouts = map[string]*layout.Layout{} // which setAttribute would clear
		s.forget()
	}
	n, r := s.nodes.Edit(slot), s.rows.Edit(slot)
	reshaped := known && !sameAttributes(n.Machine, m)
	if !known || reshaped || !sameShape(&n.Machine, &m) {
		s.shapes++
	}
	if !slices.Equal(n.Packages, m.Packages) {
		s.favours.forget()
	}
	if n.Capacity != m.Capacity {
		s.most = nil
	}
	s.count(n, r, -1)
	n.Machine = m
	r.state, r.minPriority, r.overloaded = stateOf(m), minPriority(m.Conditions), m.Overloaded
	n.devices = s.kinds.list(n.devices[:0], n.Devices)
	r.devices = 0
	s.count(n, r, 1)
	n.holds = s.packages.Set(slot, n.holds, m.Packages, s.holdsOf)
	for d, v := range vectorOf(m.Capacity) {
		s.largest[d] = max(s.largest[d], v)
	}
	s.largest[dims] = max(s.largest[dims], int64(DeviceMilli*len(n.devices)))
	if reshaped {
		s.relateAll(slot, -1)
	}
	for name := range s.attributes {
		s.setAttribute(name, slot, attributeOf(&m, name))
	}
	if !known {
		for name, l := range layouts {
			s.layouts[name] = l.With(slot, s.column(name), s.nodes.Len(), s.seat)
		}
	}
	if reshaped {
		s.relateAll(slot, 1)
		clear(s.layouts)
		s.forget()
		s.reshapes++
	}
	s.recharge(slot)
}

func stateOf(m Machine) uint8 {
	switch {
	case !m.Up:
		return stateDown
	case m.Draining:
		return stateDraining
	case m.Cordoned:
		return stateCordoned
	}
	return stateUp
}

// sameShape reports whether a machine suits the same tasks as before, but for its attributes.
func sameShape(a, b *Machine) bool {
	return stateOf(*a) == stateOf(*b) && slices.Equal(a.Conditions, b.Conditions) && slices.EqualFunc(a.Devices, b.Devices, Device.equal) &&
		slices.EqualFunc(a.Taints, b.Taints, func(x, y Taint) bool { return x.Key == y.Key && x.Value == y.Value && slices.Equal(x.Users, y.Users) })
}

func sameAttributes(a, b Machine) bool {
	if len(a.Attributes) != len(b.Attributes) {
		return false
	}
	for k, v := range a.Attributes {
		if w, ok := b.Attributes[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// RemoveMachine forgets a machine and what it holds.
func (s *Snapshot) RemoveMachine(name string) {
	s.merge()
	slot, ok := s.slots.Get(name)
	if !ok {
		return
	}
	for s.nodes.At(slot).first >= 0 {
		s.drop(s.nodes.At(slot).first)
	}
	s.slots.Remove(name)
	s.packages.Set(slot, s.nodes.At(slot).holds, nil, s.holdsOf)
	n, r := s.nodes.Edit(slot), s.rows.Edit(slot)
	s.count(n, r, -1)
	*n, *r = node{first: -1}, row{state: stateGone, heldAt: -1}
	for attribute := range s.attributes {
		s.setAttribute(attribute, slot, "")
	}
	s.spare = append(s.spare, slot)
	s.shapes++
	clear(s.layouts)
	s.forget()
}

func (s *Snapshot) newSlot() int32 {
	if k := len(s.spare); k > 0 {
		slot := s.spare[k-1]
		s.spare = s.spare[:k-1]
		return slot
	}
	s.rows.Add(row{state: stateGone, heldAt: -1})
	return s.nodes.Add(node{first: -1})
}

// column returns the column of an attribute, made when first asked for.
func (s *Snapshot) column(name string) *layout.Column {
	c := s.attributes[name]
	if c == nil {
		c = layout.NewColumn(s.nodes.Len())
		s.attributes[name] = c
		for slot := range s.nodes.Len() {
			if s.rows.At(slot).state != stateGone {
				c.Set(slot, attributeOf(&s.nodes.At(slot).Machine, name))
			}
		}
	}
	return c
}

// setAttribute takes over the value that a machine has of an attribute for which
// there is a column.
func (s *Snapshot) setAttribute(name string, slot int32, value string) {
	c := s.attributes[name]
	if int(slot) < len(c.At) && c.Values[c.At[slot]] == value {
		return
	}
	if c.IsShared() { // layouts and classes were made of it
		c = c.Copied()
		s.attributes[name] = c
		s.kindred.columns = nil
		clear(s.layouts)
		s.forget()
		s.reshapes++
	}
	c.Set(slot, value)
}

// layoutFor returns the layout for jobs that spread over an attribute.
func (s *Snapshot) layoutFor(attribute string) *layout.Layout {
	l := s.layouts[attribute]
	if l == nil {
		slots := make([]int32, 0, s.slots.Len())
		for slot := range s.nodes.Len() {
			if s.rows.At(slot).state != stateGone {
				slots = append(slots, slot)
			}
		}
		l = layout.New(s.column(attribute), slots, s.nodes.Len(), s.seat)
		s.layouts[attribute] = l
	}
	return l
}

// holdsOf returns the packages of each machine, in the order of the slots.
func (s *Snapshot) holdsOf(yield func(slot int32, holds []int32) bool) {
	for slot := range s.nodes.Len() {
		if !yield(slot, s.nodes.At(slot).holds) {
			return
		}
	}
}

// seat says which machine is in a slot.
func (s *Snapshot) seat(slot int32) (name string, hash uint64) {
	n := s.nodes.At(slot)
	return n.Name, n.hash
}

func (s *Snapshot) compareSlots(a, b int32) int {
	return cmp.Compare(s.nodes.At(a).Name, s.nodes.At(b).Name)
}

// SetParallel has the passes that follow do some of their work with run, which calls do with
// each number below n, once, and returns when all calls have returned. It may make them at
// the same time, from goroutines of its own. What is decided does not depend on it. nil is
// without.
func (s *Snapshot) SetParallel(run func(n int, do func(i int))) { s.parallel = run }

// recharge computes what is free on a machine from its capacity and tasks.
func (s *Snapshot) recharge(slot int32) {
	n, r := s.nodes.Edit(slot), s.rows.Edit(slot)
	r.byLimit = vectorOf(n.Capacity)
	r.byReserv, r.prodCPU = r.byLimit, 0
	n.ports.Reset()
	for _, p := range n.BusyPorts {
		n.ports.Take(p)
	}
	for i := range n.devices {
		n.devices[i].Free = DeviceMilli
	}
	for _, u := range n.BusyDevices {
		if u.Index < len(n.devices) {
			n.devices[u.Index].Free -= int16(u.Milli)
		}
	}
	for t := n.first; t >= 0; t = s.tasks.At(t).nextHere {
		if h := s.tasks.At(t); h.alloc != nil {
			s.tasks.Edit(t).alloc = &alloc{free: h.limit}
		}
	}
	for t := n.first; t >= 0; t = s.tasks.At(t).nextHere {
		s.charge(t, 1)
	}
	s.touch(slot)
}

// touch notes that a machine changed and brings up to date what depends on
// what is free.
func (s *Snapshot) touch(slot int32) {
	n, r := s.nodes.At(slot), s.rows.Edit(slot)
	r.ports = n.ports.Free(n.Ports.First, n.Ports.Last)
	r.version++
	s.log = append(s.log, slot)
	was := r.devices
	s.derive(n, r)
	s.use(n, r, was)
	for _, p := range s.peaks {
		p.Raise(slot, r.mostFree())
	}
	if len(s.log) > 8*int(s.nodes.Len())+1024 {
		cut := len(s.log) - 4*int(s.nodes.Len())
		s.trimmed += cut
		s.log = append(s.log[:0], s.log[cut:]...)
	}
}

// shade is touch where a machine comes to be held, or is not held any more.
func (s *Snapshot) shade(slot int32) {
	s.touch(slot)
	s.shades++
}

// now returns the position in the log up to which everything has happened.
func (s *Snapshot) now() int { return s.trimmed + len(s.log) }

// happened counts what has changed but for which machines are held.
func (s *Snapshot) happened() int { return s.now() - s.shades }

// stay is how many tasks of a job machines hold, or have room for, that are not stopping.
func (s *Snapshot) stay(job int32) (n int) {
	if s.stopping.Len() == 0 {
		return int(s.jobs.At(job).held)
	}
	for id := s.jobs.At(job).first; id >= 0; id = s.tasks.At(id).nextOfJob {
		if !s.tasks.At(id).stopping {
			n++
		}
	}
	return n
}
