package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// cell is a small cell drawn at random.
type cell struct {
	machines []placement.Machine
	tasks    []placement.Task
	asks     []placement.Ask
	budgets  map[schema.JobName]int
	// protected are jobs of which no task is evicted.
	protected map[schema.JobName]bool
	forked    bool // decisions are made on forks
}

var priorities = []schema.Priority{0, 25, 100, 110, 200, 210, 300}

func drawCell(t *rapid.T) cell {
	c := cell{forked: rapid.Bool().Draw(t, "forked")}
	for i := range rapid.IntRange(1, 6).Draw(t, "machines") {
		m := placement.Machine{
			Name: fmt.Sprint("m", i), Up: rapid.IntRange(0, 9).Draw(t, "up") > 0, Draining: rapid.IntRange(0, 9).Draw(t, "drain") == 0, Cordoned: rapid.IntRange(0, 9).Draw(t, "cordon") == 0,
			Capacity: schema.Resources{
				CPUMilli: int64(rapid.IntRange(0, 8).Draw(t, "cpu")) * 1000,
				RAMBytes: int64(rapid.IntRange(0, 8).Draw(t, "ram")), DiskBytes: int64(rapid.IntRange(0, 8).Draw(t, "disk")),
			},
			Attributes: map[string]string{"rack": rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "rack")},
			Ports:      schema.PortRange{First: 1000, Last: 1000 + rapid.IntRange(0, 3).Draw(t, "ports")},
			Devices:    []placement.Device{{Kind: "gpu", Model: "T4", Count: rapid.IntRange(0, 2).Draw(t, "gpus")}},
		}
		for range rapid.IntRange(0, 2).Draw(t, "described gpus") {
			m.Devices = append(m.Devices, placement.Device{Kind: "gpu", Count: rapid.IntRange(1, 2).Draw(t, "alike"), Attributes: map[string]string{
				"memory": rapid.SampledFrom([]string{"8Gi", "16Gi"}).Draw(t, "memory"), "link": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "link"),
			}})
		}
		m.Overloaded = rapid.IntRange(0, 4).Draw(t, "overloaded") == 0
		if rapid.IntRange(0, 3).Draw(t, "trouble") == 0 {
			kinds := append(schema.ConditionKinds(), "of-a-later-version")
			m.Conditions = rapid.SliceOfNDistinct(rapid.SampledFrom(kinds), 1, 2, rapid.ID[schema.ConditionKind]).Draw(t, "conditions")
		}
		if rapid.IntRange(0, 5).Draw(t, "tainted") == 0 {
			m.Taints = []placement.Taint{{Key: "dedicated", Value: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "to"), Users: rapid.SampledFrom([][]string{nil, {"u"}}).Draw(t, "users")}}
		}
		c.machines = append(c.machines, m)
	}
	c.drawHeld(t)
	c.budgets = map[schema.JobName]int{}
	for i := range rapid.IntRange(1, 8).Draw(t, "asks") {
		a := drawAsk(t)
		a.Name.Index = 100 + i
		c.asks = append(c.asks, a)
	}
	if rapid.Bool().Draw(t, "budgets") {
		for _, h := range c.tasks {
			if rapid.Bool().Draw(t, "budget") {
				c.budgets[h.Name.JobName] = rapid.IntRange(0, 2).Draw(t, "left")
			}
		}
		c.budgets[c.asks[0].Name.JobName] = rapid.IntRange(0, 2).Draw(t, "left")
	}
	return c
}

// drawHeld fills the cell by placing asks on it, so that what is held is
// possible.
func (c *cell) drawHeld(t *rapid.T) {
	var asks []placement.Ask
	for i := range rapid.IntRange(0, 10).Draw(t, "held") {
		a := drawAsk(t)
		a.Name.Index = i
		asks = append(asks, a)
	}
	gangs := map[schema.JobName]string{}
	if rapid.Bool().Draw(t, "gangs") {
		for _, name := range []string{"i", "j", "k"} {
			gangs[schema.JobName{Cell: "c", User: "u", Job: name}] = rapid.SampledFrom(ways).Draw(t, "together")
		}
	}
	c.drawProtected(t, gangs)
	s := placement.NewSnapshot(c.machines, nil)
	for _, d := range placement.Place(s, asks, 1) {
		if d.Machine == "" {
			continue
		}
		i := slices.IndexFunc(asks, func(a placement.Ask) bool { return a.Name == d.Name })
		a := asks[i]
		h := placement.Task{
			Name: a.Name, Machine: d.Machine, Priority: a.Priority, Limit: a.Limit, Ports: d.Ports, Devices: d.Devices, Ask: &a,
		}
		if !a.Priority.Prod() && a.Limit.RAMBytes > 1 && rapid.Bool().Draw(t, "estimate") {
			h.Reservation = a.Limit
			h.Reservation.RAMBytes--
		}
		if n := rapid.IntRange(0, 3).Draw(t, "since"); n > 0 {
			h.Since = noon.Add(time.Duration(n) * time.Minute)
		}
		gather(&h, gangs[h.Name.JobName])
		h.Stopping = rapid.IntRange(0, 9).Draw(t, "stopping") == 0
		c.tasks = append(c.tasks, h)
	}
}

func drawAsk(t *rapid.T) placement.Ask {
	a := placement.Ask{
		Name: schema.JobName{
			Cell: "c", User: rapid.SampledFrom([]string{"u", "v"}).Draw(t, "user"), Job: rapid.SampledFrom([]string{"i", "j", "k"}).Draw(t, "job"),
		}.Task(0),
		Priority: rapid.SampledFrom(priorities).Draw(t, "priority"),
		Limit: schema.Resources{
			CPUMilli: int64(rapid.IntRange(0, 4).Draw(t, "cpu")) * 1000,
			RAMBytes: int64(rapid.IntRange(0, 4).Draw(t, "ram")), DiskBytes: int64(rapid.IntRange(0, 3).Draw(t, "disk")),
		},
	}
	for range rapid.IntRange(0, 2).Draw(t, "extras") {
		drawExtra(t, &a)
	}
	if rapid.IntRange(0, 2).Draw(t, "tolerant") == 0 {
		a.Tolerations = []placement.Toleration{{Key: rapid.SampledFrom([]string{"", "dedicated", "other"}).Draw(t, "key"), Value: rapid.SampledFrom([]string{"", "x"}).Draw(t, "value")}}
	}
	if rapid.IntRange(0, 2).Draw(t, "related") == 0 {
		a.Relations = drawRelations(t)
	}
	if rapid.IntRange(0, 4).Draw(t, "noisy") == 0 {
		a.Apart = []schema.JobName{{Cell: "c", User: "u", Job: rapid.SampledFrom([]string{"i", "j", "gone"}).Draw(t, "apart from")}}
	}
	return a
}

func drawRelations(t *rapid.T) *placement.Relations {
	r := &placement.Relations{Labels: map[string]string{"app": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "app")}}
	draw := func(name string) (list []placement.Affinity) {
		for range rapid.IntRange(0, 2).Draw(t, name) {
			selector, err := schema.ParseSelector(rapid.SampledFrom([]string{"app=x", "app=y", "app!=x", "app"}).Draw(t, "selector"))
			if err != nil {
				t.Fatal(err)
			}
			f := placement.Affinity{
				Selector: selector, User: rapid.SampledFrom([]string{"", "u"}).Draw(t, "of"),
				By: rapid.SampledFrom([]string{"rack", placement.MachineAttribute}).Draw(t, "by"), Weight: rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "weight"),
			}
			if !slices.ContainsFunc(list, func(o placement.Affinity) bool { return o.Text() == f.Text() }) {
				list = append(list, f)
			}
		}
		return list
	}
	r.AntiAffinity = draw("apart")
	if rapid.Bool().Draw(t, "near") {
		r.Affinity = draw("affinity")
	}
	return r
}

func drawDevice(t *rapid.T) placement.DeviceAsk {
	d := placement.DeviceAsk{Kind: "gpu", Count: rapid.IntRange(1, 3).Draw(t, "count")}
	if rapid.Bool().Draw(t, "of memory") {
		d.Constraints = []placement.Constraint{{Attribute: "memory", Op: placement.OpAtLeast, Values: []string{rapid.SampledFrom([]string{"8Gi", "16Gi"}).Draw(t, "at least")}}}
	}
	if d.Count > 1 && rapid.Bool().Draw(t, "near") {
		d.Same = "link"
	}
	return d
}

func drawExtra(t *rapid.T, a *placement.Ask) {
	switch rapid.IntRange(0, 10).Draw(t, "extra") {
	case 0:
		a.Ports, a.PortNumbers = []string{"http"}, nil
		if rapid.Bool().Draw(t, "number") {
			a.Ports = []string{"http", "sql"}
			a.PortNumbers = map[string]int{"sql": rapid.SampledFrom([]int{1000, 1001, 80}).Draw(t, "sql")}
		}
	case 8:
		a.Devices, a.FirstOf = []placement.DeviceAsk{drawDevice(t)}, nil // the oracle is exact for one
	case 10:
		a.Devices, a.FirstOf = nil, nil
		for range rapid.IntRange(1, 3).Draw(t, "alternatives of devices") {
			a.FirstOf = append(a.FirstOf, []placement.DeviceAsk{drawDevice(t)})
		}
		if rapid.Bool().Draw(t, "or none") {
			a.FirstOf = append(a.FirstOf, nil)
		}
	case 1, 2:
		if a.FirstOf != nil || a.Devices != nil && (a.Devices[0].Count > 1 || a.Devices[0].Constraints != nil) {
			break
		}
		a.Devices = append(a.Devices, placement.DeviceAsk{Kind: "gpu", Count: 1, Milli: rapid.SampledFrom([]int{0, 300, 500}).Draw(t, "milli")})
	case 3:
		a.Constraints = []placement.Constraint{{Attribute: "rack", Op: placement.OpIn, Values: []string{"a"}}}
	case 4:
		a.PerDomain = []placement.DomainLimit{{Attribute: rapid.SampledFrom([]string{"rack", "machine"}).Draw(t, "domain"), Max: 1}}
	case 7:
		for range rapid.IntRange(1, 3).Draw(t, "alternatives") {
			var all []placement.Constraint
			for range rapid.IntRange(1, 2).Draw(t, "constraints") {
				all = append(all, placement.Constraint{
					Attribute: rapid.SampledFrom([]string{"rack", "machine"}).Draw(t, "of"), Op: rapid.SampledFrom([]placement.Op{placement.OpIn, placement.OpNotIn}).Draw(t, "op"),
					Values: rapid.SampledFrom([][]string{{"a"}, {"b"}, {"m0"}, {"m1", "m2"}}).Draw(t, "values"),
				})
			}
			a.AnyOf = append(a.AnyOf, all)
		}
	case 6:
		a.MaxSkew = []placement.SkewLimit{{
			Attribute: rapid.SampledFrom([]string{"rack", "machine"}).Draw(t, "skewed"), Max: rapid.IntRange(1, 2).Draw(t, "skew"), MinDomains: rapid.IntRange(0, 3).Draw(t, "min"),
		}}
	case 9:
		a.Preferences = []placement.Preference{{
			Constraint: placement.Constraint{Attribute: "rack", Op: placement.OpIn, Values: []string{"a"}}, Weight: rapid.SampledFrom([]int{-50, 25, 100}).Draw(t, "wished"),
		}}
	case 5:
		a.Avoid = []string{"m0"}
	}
}

func (c *cell) snapshot(o placement.Options) *placement.Snapshot {
	s := placement.NewSnapshot(c.machines, c.tasks)
	s.Configure(o)
	s.SetBudgets(budgetsOf(c.budgets))
	if len(c.protected) > 0 {
		s.SetProtected(1, func(job schema.JobName) bool { return c.protected[job] })
	}
	if c.forked {
		return s.Fork()
	}
	return s
}

// budgetsOf returns budgets as a snapshot asks for them; nil for none.
func budgetsOf(m map[schema.JobName]int) func(schema.JobName) (int, bool) {
	if len(m) == 0 {
		return nil
	}
	return func(name schema.JobName) (int, bool) {
		n, ok := m[name]
		return n, ok
	}
}

func (c *cell) place(o placement.Options) []placement.Decision {
	return placement.Place(c.snapshot(o), c.asks, 7)
}

// follower applies decisions one by one to an oracle and checks each.
type follower struct {
	*oracle
	asks    map[schema.TaskName]placement.Ask
	budgets map[schema.JobName]int
	preempt bool
	relaxed bool // victims need not be the cheapest, only all be needed
}

func (c *cell) follower(o placement.Options) *follower {
	f := &follower{
		oracle: newOracle(c.machines, c.tasks), asks: map[schema.TaskName]placement.Ask{}, budgets: map[schema.JobName]int{},
		preempt: o.Preempt, relaxed: !o.NoRelaxed,
	}
	f.protected = c.protected
	for _, a := range c.asks {
		f.asks[a.Name] = a
	}
	for j, n := range c.budgets {
		f.budgets[j] = n
	}
	return f
}

func (f *follower) follow(t *rapid.T, decisions []placement.Decision) {
	for _, d := range decisions {
		a := f.asks[d.Name]
		feasible := f.feasible(a)
		want, possible := victims{}, false
		if f.preempt && len(feasible) == 0 {
			want, possible = f.cheapest(a, f.budgets)
		}
		if d.Machine == "" {
			if len(feasible) > 0 || possible {
				t.Fatalf("%v is pending, but fits on %v or with victims %v", d.Name, feasible, want)
			}
			checkSum(t, d)
			f.checkChange(t, a, d.Why.Change)
			continue
		}
		inDomain, onMachine := f.company(f.machines[d.Machine], a)
		gone := f.remove(t, d)
		is := f.cost(f.machines[d.Machine], gone, f.on(d.Machine), a, f.budgets)
		is.inDomain, is.onMachine = inDomain, onMachine
		switch {
		case len(gone) == 0 && !slices.Contains(feasible, d.Machine):
			t.Fatalf("%v is on %s, but fits on %v only", d.Name, d.Machine, feasible)
		case len(gone) > 0 && len(feasible) > 0:
			t.Fatalf("%v evicts %v, but fits on %v", d.Name, d.Victims, feasible)
		case len(gone) > 0 && !f.relaxed && is != want:
			t.Fatalf("%v evicts %v at %v, cheapest is %v", d.Name, d.Victims, is, want)
		case want.overruns == 0 && is.overruns > 0:
			t.Fatalf("%v evicts %v beyond budgets %v, and would have room at %v", d.Name, d.Victims, f.budgets, want)
		}
		m := f.machines[d.Machine]
		if !f.admits(m, a) || !f.fits(m, f.on(d.Machine), a) {
			t.Fatalf("%v does not fit on %s", d.Name, d.Machine)
		}
		if a.FirstOf != nil {
			if is, want := placement.Chosen(&a, m.Devices, d.Devices), f.first(m, f.freeDevices(m, f.on(d.Machine)), a); is != want {
				t.Fatalf("%v gets %v of %s, alternative %d of %v: want %d, the first that there is", d.Name, d.Devices, d.Machine, is, a.FirstOf, want)
			}
		}
		for _, v := range gone {
			if f.fits(m, append(f.on(d.Machine), v), a) {
				t.Fatalf("%v evicts %v, of which %v is of no use", d.Name, d.Victims, v.Name)
			}
			who, gathers := party(v)
			less := map[schema.JobName]int{v.Name.JobName: 1}
			if gathers {
				if less = nil; f.hit[who] == 0 {
					less = f.gang(who, gone)
				}
			}
			f.hit[who]++
			for job, n := range less {
				if _, ok := f.budgets[job]; ok {
					f.budgets[job] -= n
				}
			}
		}
		h := placement.Task{Name: d.Name, Machine: d.Machine, Priority: a.Priority, Limit: a.Limit, Ports: d.Ports, Devices: d.Devices, Ask: &a}
		f.tasks[key(h)] = h
		checkExclusive(t, f.oracle, d.Machine)
	}
}

// remove takes the victims of a decision off their machine.
func (f *follower) remove(t *rapid.T, d placement.Decision) (gone []placement.Task) {
	for _, v := range d.Victims {
		h := placement.Task{Name: v.Name, Generation: v.Generation, Machine: d.Machine}
		victim, ok := f.tasks[key(h)]
		if !ok || !f.mayGo(victim, f.asks[d.Name]) {
			t.Fatalf("%v evicts %v, which it must not", d.Name, v)
		}
		gone = append(gone, victim)
		delete(f.tasks, key(h))
		if victim.Ask != nil {
			again := *victim.Ask
			again.Name = victim.Name
			f.asks[victim.Name] = again
		}
	}
	return gone
}

func checkSum(t *rapid.T, d placement.Decision) {
	sum := d.Why.Feasible
	for _, r := range d.Why.Refused {
		sum += r.Machines
	}
	if sum != d.Why.Machines {
		t.Fatalf("%v: reasons sum to %d of %d: %v", d.Name, sum, d.Why.Machines, d.Why)
	}
}

// checkExclusive looks for a port or a device that is given away twice.
func checkExclusive(t *rapid.T, o *oracle, machine string) {
	seen := map[int]bool{}
	for _, h := range o.on(machine) {
		for _, p := range h.Ports {
			if seen[p.Port] {
				t.Fatalf("port %d of %s has two tasks", p.Port, machine)
			}
			seen[p.Port] = true
		}
		if h.Ask != nil {
			for name, p := range h.Ask.PortNumbers {
				if has, _ := h.Ports.Get(name); has != p {
					t.Fatalf("%s asks for port %d and has %v", h.Name, p, h.Ports)
				}
			}
		}
	}
	for i, free := range o.freeDevices(o.machines[machine], o.on(machine)) {
		if free < 0 {
			t.Fatalf("device %d of %s is overcommitted", i, machine)
		}
	}
}

func TestPlaceAgainstOracle(t *testing.T) {
	t.Parallel()
	for _, preempt := range []bool{false, true} {
		t.Run(fmt.Sprint("preempt=", preempt), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := drawCell(t)
				o := placement.Options{Preempt: preempt, NoRelaxed: true, Policy: drawPolicy(t)}
				c.follower(o).follow(t, c.place(o))
			})
		})
	}
}

// Relaxed and with small pools the answers may differ, but never be wrong.
func TestRelaxedAgainstOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := placement.Options{Enough: rapid.IntRange(1, 3).Draw(t, "enough"), Preempt: rapid.Bool().Draw(t, "preempt")}
		c.follower(o).follow(t, c.place(o))
	})
}

// Passes that go on from each other, with changes between them, answer as the
// oracle does each time: nothing that helps a pending ask is missed, and the
// reasons and the smallest change stay true.
func TestPassesAgainstOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := placement.Options{NoRelaxed: rapid.Bool().Draw(t, "noRelaxed"), Preempt: rapid.Bool().Draw(t, "preempt"), Enough: 2}
		s, f := c.snapshot(o), c.follower(o)
		asks := c.asks
		for range rapid.IntRange(2, 5).Draw(t, "passes") {
			decisions := placement.Place(s, asks, 7)
			f.follow(t, decisions)
			asks = asks[:0:0]
			for _, d := range decisions {
				if d.Machine == "" {
					asks = append(asks, f.asks[d.Name])
				}
			}
			f.change(t, s)
		}
	})
}

// change ends and resizes tasks and alters machines.
func (f *follower) change(t *rapid.T, s *placement.Snapshot) {
	for _, name := range sortedKeys(f.tasks) {
		if h := f.tasks[name]; rapid.IntRange(0, 3).Draw(t, "end") == 0 {
			s.RemoveTask(h.Name, h.Machine, h.Generation)
			delete(f.tasks, name)
		}
	}
	for _, name := range sortedKeys(f.machines) {
		m := f.machines[name]
		switch rapid.IntRange(0, 11).Draw(t, "alter") {
		case 0, 1:
			m.Up = !m.Up
		case 2:
			m.Draining = !m.Draining
		case 3:
			m.Capacity.RAMBytes = int64(rapid.IntRange(0, 8).Draw(t, "ram"))
		case 4:
			m.Attributes = map[string]string{"rack": rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "rack")}
		case 6:
			m.Conditions = rapid.SliceOfNDistinct(rapid.SampledFrom(schema.ConditionKinds()), 0, 2, rapid.ID[schema.ConditionKind]).Draw(t, "conditions")
		case 5: // it goes with all it holds, and comes back empty
			s.RemoveMachine(name)
			for _, h := range f.on(name) {
				delete(f.tasks, key(h))
			}
		default:
			continue
		}
		f.machines[name] = m
		s.SetMachine(m)
	}
	for _, name := range sortedKeys(f.tasks) {
		if h := f.tasks[name]; rapid.IntRange(0, 5).Draw(t, "resize") == 0 {
			h.Limit.RAMBytes = int64(rapid.IntRange(0, 4).Draw(t, "ram"))
			h.Stopping, h.Reservation = rapid.Bool().Draw(t, "stopping"), schema.Resources{}
			f.tasks[name] = h
			s.SetTask(h)
		}
	}
}

func drawPolicy(t *rapid.T) placement.Policy {
	return rapid.SampledFrom([]placement.Policy{"", placement.BestFit, placement.WorstFit, placement.Random}).Draw(t, "policy")
}

func TestSameSeedSameAnswerWhateverTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := placement.Options{Preempt: true, Policy: drawPolicy(t), Enough: rapid.IntRange(0, 3).Draw(t, "enough")}
		want := c.place(o)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shuffle"), 0))
		shuffle(r, c.machines)
		shuffle(r, c.tasks)
		shuffle(r, c.asks)
		if diff := cmp.Diff(want, c.place(o)); diff != "" {
			t.Fatalf("another order of the input gave another answer (-want +got):\n%s", diff)
		}
	})
}

func shuffle[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

func TestCacheAndClassesChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := placement.Options{Preempt: true, NoRelaxed: true}
		want := c.place(o)
		o.NoCache = rapid.Bool().Draw(t, "noCache")
		o.NoClasses = rapid.Bool().Draw(t, "noClasses")
		if diff := cmp.Diff(want, c.place(o)); diff != "" {
			t.Fatalf("%+v changed the answer (-want +got):\n%s", o, diff)
		}
	})
}

func TestUnusedMachinesAreHarmless(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := placement.Options{Preempt: true, NoRelaxed: true}
		want := where(c.place(o))
		for i := range rapid.IntRange(1, 4).Draw(t, "more") {
			m := placement.Machine{Name: fmt.Sprint("down", i), Capacity: schema.Resources{CPUMilli: 64000, RAMBytes: 99, DiskBytes: 99}}
			m.Attributes = map[string]string{"rack": rapid.SampledFrom([]string{"", "a", "z"}).Draw(t, "rack")}
			c.machines = append(c.machines, m)
		}
		if diff := cmp.Diff(want, where(c.place(o))); diff != "" {
			t.Fatalf("machines that are down changed the answer (-want +got):\n%s", diff)
		}
	})
}

func where(ds []placement.Decision) map[schema.TaskName]string {
	out := map[schema.TaskName]string{}
	for _, d := range ds {
		out[d.Name] = d.Machine
	}
	return out
}

// A snapshot to which every change was applied answers like a new one. What is
// typical is learnt from time to time only, so the policy is one without it.
func TestIncrementalIsLikeNew(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := placement.Options{Preempt: true, NoRelaxed: true, Policy: placement.BestFit}
		s := c.snapshot(o)
		before := drawCell(t)
		placement.Place(s, before.asks, 7) // fill the caches, and undo it
		s.Configure(o)
		s = c.undo(s)
		for i := range c.machines {
			if rapid.Bool().Draw(t, "toggle") {
				c.machines[i].Up = !c.machines[i].Up
				s.SetMachine(c.machines[i])
			}
		}
		if n := len(c.tasks); n > 0 {
			gone := c.tasks[n-1]
			s.RemoveTask(gone.Name, gone.Machine, gone.Generation)
			c.tasks = c.tasks[:n-1]
		}
		s.SetBudgets(budgetsOf(c.budgets))
		if diff := cmp.Diff(where(c.place(o)), where(placement.Place(s, c.asks, 7))); diff != "" {
			t.Fatalf("a snapshot that was updated differs from a new one (-new +updated):\n%s", diff)
		}
	})
}

// undo brings a snapshot that was placed on back to what the cell holds.
func (c *cell) undo(s *placement.Snapshot) *placement.Snapshot {
	for _, m := range c.machines {
		s.RemoveMachine(m.Name)
		s.SetMachine(m)
	}
	for _, h := range c.tasks {
		s.SetTask(h)
	}
	return s
}
