package placement

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/musterhq/muster/schema"
)

// dims is the number of scalar dimensions: CPU, RAM and disk, in the order of
// schema.Dimensions.
const dims = 3

type vector [dims]int64

func vectorOf(r schema.Resources) vector { return vector{r.CPUMilli, r.RAMBytes, r.DiskBytes} }

func (v vector) resources() schema.Resources {
	return schema.Resources{CPUMilli: v[0], RAMBytes: v[1], DiskBytes: v[2]}
}

// Snapshot is the cell as placement sees it: machines and what they hold. It
// is kept from pass to pass and told what changed.
type Snapshot struct {
	options Options
	weights Weights

	slots map[string]int32 // machine name → slot
	nodes []node           // by slot
	spare []int32          // slots of removed machines
	columns
	largest [dims + 1]int64 // of any machine there was, devices last

	jobIDs map[schema.JobName]int32
	jobs   []job
	tasks  []task
	unused []int32          // of tasks
	here   map[uint64]int32 // tasks of a job on a machine, see together
	// stopping is how many of them are.
	stopping map[uint64]int32
	allocs   map[int32]*alloc // by task
	budgets  map[int32]int    // by job, as far as they were asked for
	// budgetOf tells the budget of a job; nil for none. See SetBudgets.
	budgetOf func(schema.JobName) (int, bool)
	bounded  bool             // any job has one, as far as they were asked for
	claims   map[uint64]int32 // tasks by job and index, see Claim

	attributes map[string]*column
	packages   map[string]int32
	kinds      map[string]int16 // device kinds and models

	// log lists the slots that changed, oldest first; entry i has the
	// absolute position trimmed+i. Scores are brought up to date from it.
	log        []int32
	trimmed    int
	epoch      int                         // counts what makes all scores void
	ofPriority [schema.MaxPriority + 1]int // tasks held, by priority
	losses     int                         // counts the tasks that went
	passes     int

	layouts map[string]*layout
	typical typical
	classes map[string]*class
	rests   map[string]*Ask // see restOf
	// remembered is what the classes keep, in candidates; see classBudget.
	remembered int
	holds      []int32 // slots held for long waiters in this pass
	scratch    []byte
	scored     []Score // to be given out
}

// columns is what a scan over the machines reads, one array per fact.
type columns struct {
	state    []uint8
	byLimit  [dims][]int64       // capacity less the limits of all tasks
	byReserv [dims][]int64       // capacity less their reservations
	ports    []int32             // free ports
	version  []uint32            // counts the changes of a machine
	heldAt   []int16             // priority for which a machine is held, or -1
	letsIn   []int16             // lowest priority that its conditions let in
	unit     [][dims + 1]float32 // direction of what is free, length 1; devices last
	stranded []float32           // of what is free
	fits     []uint32            // typical asks that fit, as bits
	devices  []int32             // free thousandths of all devices
	idle     []bool              // next to nothing of it is used
	prodCPU  []int64             // limits of prod tasks
}

// What stands in columns.state.
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
	hash    uint64   // of its name
	first   int32    // of its tasks, or -1
	taken   []uint16 // ports, sorted
	devices []device
	holds   []int32 // packages, sorted
}

// device is one device of a node.
type device struct {
	kind, model int16
	free        int16 // thousandths
}

// NewSnapshot returns the snapshot of the given machines and tasks. A task on
// a machine that is not listed is left out.
func NewSnapshot(machines []Machine, tasks []Task) *Snapshot {
	s := &Snapshot{
		weights: DefaultWeights(),
		slots:   make(map[string]int32, len(machines)),
		jobIDs:  map[schema.JobName]int32{},
		here:    make(map[uint64]int32, len(tasks)), stopping: map[uint64]int32{},
		allocs: map[int32]*alloc{}, budgets: map[int32]int{}, claims: map[uint64]int32{},
		attributes: map[string]*column{}, packages: map[string]int32{}, kinds: map[string]int16{},
		layouts: map[string]*layout{}, rests: map[string]*Ask{}, classes: map[string]*class{},
	}
	// Slots follow the layout of the usual class, so that a scan reads memory
	// in order.
	sorted := slices.Clone(machines)
	slices.SortFunc(sorted, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(a.Attributes[DefaultSpread], b.Attributes[DefaultSpread]), cmp.Compare(a.Name, b.Name))
	})
	for _, m := range sorted {
		s.SetMachine(m)
	}
	for _, allocs := range []bool{true, false} { // a task needs its alloc to be there
		for _, t := range tasks {
			if slot, ok := s.slots[t.Machine]; ok && t.IsAlloc == allocs {
				s.hold(s.taskOf(t, slot))
			}
		}
	}
	for slot := range s.nodes {
		s.touch(int32(slot))
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

// forget voids all that is remembered between passes.
func (s *Snapshot) forget() {
	s.epoch++
	s.remembered = 0
	clear(s.classes)
}

// Len returns the number of machines.
func (s *Snapshot) Len() int { return len(s.slots) }

// SetMachine adds a machine or takes over what changed of it. What the
// machine holds stays.
func (s *Snapshot) SetMachine(m Machine) {
	slot, known := s.slots[m.Name]
	if !known {
		slot = s.newSlot()
		s.slots[m.Name] = slot
		s.nodes[slot].hash = hash(m.Name)
		clear(s.layouts)
		s.forget()
	}
	n := &s.nodes[slot]
	reshaped := known && !sameAttributes(n.Machine, m)
	n.Machine = m
	s.state[slot] = stateOf(m)
	s.letsIn[slot] = letsIn(m.Conditions)
	s.setDevices(slot)
	s.setPackages(slot)
	for d, v := range vectorOf(m.Capacity) {
		s.largest[d] = max(s.largest[d], v)
	}
	s.largest[dims] = max(s.largest[dims], int64(DeviceMilli*len(n.devices)))
	for name, c := range s.attributes {
		c.set(slot, attributeOf(&m, name))
	}
	if reshaped {
		clear(s.layouts)
		s.forget()
		s.recountDomains()
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
	slot, ok := s.slots[name]
	if !ok {
		return
	}
	for s.nodes[slot].first >= 0 {
		s.drop(s.nodes[slot].first)
	}
	delete(s.slots, name)
	s.nodes[slot] = node{first: -1}
	s.state[slot] = stateGone
	for _, c := range s.attributes {
		c.set(slot, "")
	}
	s.spare = append(s.spare, slot)
	clear(s.layouts)
	s.forget()
}

func (s *Snapshot) newSlot() int32 {
	if k := len(s.spare); k > 0 {
		slot := s.spare[k-1]
		s.spare = s.spare[:k-1]
		return slot
	}
	slot := int32(len(s.nodes))
	s.nodes = append(s.nodes, node{first: -1})
	c := &s.columns
	c.state = append(c.state, stateGone)
	for d := range dims {
		c.byLimit[d] = append(c.byLimit[d], 0)
		c.byReserv[d] = append(c.byReserv[d], 0)
	}
	c.ports = append(c.ports, 0)
	c.unit = append(c.unit, [dims + 1]float32{})
	c.version = append(c.version, 0)
	c.heldAt = append(c.heldAt, -1)
	c.letsIn = append(c.letsIn, 0)
	c.stranded = append(c.stranded, 0)
	c.fits = append(c.fits, 0)
	c.devices = append(c.devices, 0)
	c.idle = append(c.idle, false)
	c.prodCPU = append(c.prodCPU, 0)
	return slot
}

// recharge computes what is free on a machine from its capacity and tasks.
func (s *Snapshot) recharge(slot int32) {
	n := &s.nodes[slot]
	cap := vectorOf(n.Capacity)
	for d := range dims {
		s.byLimit[d][slot], s.byReserv[d][slot] = cap[d], cap[d]
	}
	s.prodCPU[slot] = 0
	n.taken = n.taken[:0]
	for _, p := range n.BusyPorts {
		n.takePort(p)
	}
	for i := range n.devices {
		n.devices[i].free = DeviceMilli
	}
	for _, u := range n.BusyDevices {
		if u.Index < len(n.devices) {
			n.devices[u.Index].free -= int16(u.Milli)
		}
	}
	for t := n.first; t >= 0; t = s.tasks[t].nextHere {
		if a := s.allocs[t]; a != nil {
			a.free = s.tasks[t].limit
		}
	}
	for t := n.first; t >= 0; t = s.tasks[t].nextHere {
		s.charge(t, 1)
	}
	s.touch(slot)
}

// touch notes that a machine changed and brings up to date what depends on
// what is free.
func (s *Snapshot) touch(slot int32) {
	n := &s.nodes[slot]
	s.ports[slot] = n.freePorts()
	s.version[slot]++
	s.log = append(s.log, slot)
	s.typical.derive(s, slot)
	if len(s.log) > 8*len(s.nodes)+1024 {
		cut := len(s.log) - 4*len(s.nodes)
		s.trimmed += cut
		s.log = append(s.log[:0], s.log[cut:]...)
	}
}

// now returns the position in the log up to which everything has happened.
func (s *Snapshot) now() int { return s.trimmed + len(s.log) }

func (n *node) freePorts() int32 {
	if n.Ports.First == 0 {
		return 0
	}
	free := n.Ports.Last - n.Ports.First + 1
	for _, p := range n.taken {
		if int(p) >= n.Ports.First && int(p) <= n.Ports.Last {
			free--
		}
	}
	return int32(free)
}

func (n *node) takePort(p int) {
	if at, found := slices.BinarySearch(n.taken, uint16(p)); !found {
		n.taken = slices.Insert(n.taken, at, uint16(p))
	}
}

func (n *node) givePort(p int) {
	if at, found := slices.BinarySearch(n.taken, uint16(p)); found {
		n.taken = slices.Delete(n.taken, at, at+1)
	}
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return mix(h.Sum64())
}

// mix spreads a hash over all bits (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
