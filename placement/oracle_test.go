package placement_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// oracle is a cell in plain maps, checked by looking at everything. It knows
// nothing of how placement works, only what must be true of its answers.
type oracle struct {
	machines map[string]placement.Machine
	tasks    map[string]placement.Task // by name, machine and generation
	asks     map[schema.TaskName]placement.Ask
	hit      map[schema.JobName]int // victims of this pass
}

func key(t placement.Task) string {
	return fmt.Sprint(t.Name.String(), "@", t.Machine, "#", t.Generation)
}

func newOracle(ms []placement.Machine, ts []placement.Task) *oracle {
	o := &oracle{map[string]placement.Machine{}, map[string]placement.Task{}, map[schema.TaskName]placement.Ask{}, map[schema.JobName]int{}}
	for _, m := range ms {
		o.machines[m.Name] = m
	}
	for _, t := range ts {
		o.tasks[key(t)] = t
	}
	return o
}

func (o *oracle) on(machine string) []placement.Task {
	var out []placement.Task
	for _, t := range o.tasks {
		if t.Machine == machine {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b placement.Task) int { return a.Name.Compare(b.Name) })
	return out
}

// fits reports whether the ask has room beside the given tasks of the machine.
func (o *oracle) fits(m placement.Machine, held []placement.Task, a placement.Ask) bool {
	free := m.Capacity
	ports := m.Ports.Last - m.Ports.First + 1
	if m.Ports.First == 0 {
		ports = 0
	}
	ports -= len(m.BusyPorts)
	devices := o.freeDevices(m, held)
	for _, t := range held {
		use := t.Limit
		if !a.Priority.Prod() && t.Reservation != (schema.Resources{}) {
			use = t.Reservation
		}
		free = free.Sub(use)
		for _, p := range t.Ports {
			if p.Port >= m.Ports.First && p.Port <= m.Ports.Last {
				ports--
			}
			if slices.Contains(slices.Collect(maps.Values(a.PortNumbers)), p.Port) {
				return false
			}
		}
	}
	for _, p := range a.PortNumbers {
		if slices.Contains(m.BusyPorts, p) {
			return false
		}
		if p < m.Ports.First || p > m.Ports.Last {
			ports++ // it takes none of the range
		}
	}
	for _, d := range a.Devices {
		for range d.Count {
			milli := d.Milli
			if milli == 0 {
				milli = placement.DeviceMilli
			}
			best := -1
			for i, f := range devices {
				if f >= milli && (best < 0 || f < devices[best]) {
					best = i
				}
			}
			if best < 0 {
				return false
			}
			devices[best] -= milli
		}
	}
	return a.Limit.Fits(free) && len(a.Ports) <= ports
}

func (o *oracle) freeDevices(m placement.Machine, held []placement.Task) []int {
	var free []int
	for _, d := range m.Devices {
		for range d.Count {
			free = append(free, placement.DeviceMilli)
		}
	}
	for _, t := range held {
		for _, u := range t.Devices {
			free[u.Index] -= u.Milli
		}
	}
	return free
}

// admits reports whether nothing but room could be in the way.
func (o *oracle) admits(m placement.Machine, a placement.Ask) bool {
	if slices.ContainsFunc(m.Conditions, func(k schema.ConditionKind) bool { return a.Priority < k.MinPriority() }) {
		return false
	}
	if !m.Up || m.Draining || m.Cordoned || slices.Contains(a.Avoid, m.Name) || a.On != "" && a.On != m.Name {
		return false
	}
	for _, c := range a.Constraints {
		v := attribute(m, c.Attribute)
		switch c.Op {
		case placement.OpIn:
			if !slices.Contains(c.Values, v) {
				return false
			}
		case placement.OpNotIn:
			if slices.Contains(c.Values, v) {
				return false
			}
		}
	}
	for _, l := range a.PerDomain {
		v := attribute(m, l.Attribute)
		n := 0
		for _, t := range o.tasks {
			if t.Name.JobName == a.Name.JobName && attribute(o.machines[t.Machine], l.Attribute) == v {
				n++
			}
		}
		if v == "" || n >= l.Max {
			return false
		}
	}
	return true
}

func attribute(m placement.Machine, name string) string {
	if name == placement.MachineAttribute {
		return m.Name
	}
	return m.Attributes[name]
}

// feasible lists the machines that have room, by name.
func (o *oracle) feasible(a placement.Ask) []string {
	var out []string
	for _, m := range o.machines {
		if o.admits(m, a) && o.fits(m, o.on(m.Name), a) {
			out = append(out, m.Name)
		}
	}
	slices.Sort(out)
	return out
}

// victims is what an eviction costs, in the order of the rule.
type victims struct {
	highest, count, sum, overruns, again, inDomain, onMachine int
	excess                                                    float32
}

func (v victims) compare(w victims) int {
	return cmp.Or(cmp.Compare(v.overruns, w.overruns), cmp.Compare(v.inDomain, w.inDomain), cmp.Compare(v.highest, w.highest),
		cmp.Compare(v.count, w.count), cmp.Compare(v.sum, w.sum), cmp.Compare(v.excess, w.excess), cmp.Compare(v.again, w.again),
		cmp.Compare(v.onMachine, w.onMachine))
}

// company counts the tasks of an ask's job that stay, in the rack of a machine, if
// any machine is in one, and on the machine.
func (o *oracle) company(m placement.Machine, a placement.Ask) (inDomain, onMachine int) {
	racks := false
	for _, other := range o.machines {
		racks = racks || attribute(other, placement.DefaultSpread) != ""
	}
	for _, t := range o.tasks {
		if t.Name.JobName != a.Name.JobName || t.Stopping {
			continue
		}
		if racks && attribute(o.machines[t.Machine], placement.DefaultSpread) == attribute(m, placement.DefaultSpread) {
			inDomain++
		}
		if t.Machine == m.Name {
			onMachine++
		}
	}
	return inDomain, onMachine
}

// cost is the cost of a set of victims, who leave others on a machine.
func (o *oracle) cost(m placement.Machine, set, left []placement.Task, a placement.Ask, budgets map[schema.JobName]int) victims {
	v := victims{count: len(set), excess: excess(m, set, left, a)}
	v.inDomain, v.onMachine = o.company(m, a)
	hit := map[schema.JobName]int{}
	for _, t := range set {
		if t.Together {
			if hit[t.Name.JobName] == 0 && o.hit[t.Name.JobName] == 0 {
				n := o.gang(t.Name.JobName, set)
				for _, other := range set {
					if other.Name.JobName == t.Name.JobName {
						v.count--
					}
				}
				v.count += n
				if left, ok := budgets[t.Name.JobName]; ok {
					v.overruns += max(0, n-max(left, 0))
				}
			}
		}
		v.highest = max(v.highest, int(t.Priority))
		v.sum += int(t.Priority)
		if hit[t.Name.JobName]++; hit[t.Name.JobName]+o.hit[t.Name.JobName] > 1 {
			v.again++
		}
		if left, ok := budgets[t.Name.JobName]; ok && !t.Together && hit[t.Name.JobName] > left {
			v.overruns++
		}
	}
	return v
}

// gang counts the tasks of a job that run, some of which may have been taken away.
func (o *oracle) gang(job schema.JobName, gone []placement.Task) (n int) {
	seen := map[string]bool{}
	for _, t := range append(slices.Collect(maps.Values(o.tasks)), gone...) {
		if t.Name.JobName == job && !t.Stopping && !seen[key(t)] {
			seen[key(t)] = true
			n++
		}
	}
	return n
}

// excess is what victims give up and the ask does not need, in multiples of the ask.
func excess(m placement.Machine, set, left []placement.Task, a placement.Ask) (sum float32) {
	use := func(list []placement.Task) (r schema.Resources) {
		for _, t := range list {
			if a.Priority.Prod() || t.Reservation == (schema.Resources{}) {
				r = r.Add(t.Limit)
			} else {
				r = r.Add(t.Reservation)
			}
		}
		return r
	}
	given := use(set)
	lack := a.Limit.Sub(m.Capacity.Sub(use(left)).Sub(given))
	for _, d := range [][3]int64{
		{given.CPUMilli, lack.CPUMilli, a.Limit.CPUMilli}, {given.RAMBytes, lack.RAMBytes, a.Limit.RAMBytes}, {given.DiskBytes, lack.DiskBytes, a.Limit.DiskBytes},
	} {
		if more := d[0] - max(d[1], 0); more > 0 {
			sum += float32(more) / float32(max(d[2], 1))
		}
	}
	return sum
}

// cheapest tries every subset of every machine's tasks.
func (o *oracle) cheapest(a placement.Ask, budgets map[schema.JobName]int) (victims, bool) {
	var best victims
	found := false
	for _, m := range o.machines {
		if !o.admits(m, a) {
			continue
		}
		held := o.on(m.Name)
		for set := range 1 << len(held) {
			var gone, left []placement.Task
			allowed := true
			for i, t := range held {
				if set&(1<<i) == 0 {
					left = append(left, t)
					continue
				}
				gone = append(gone, t)
				allowed = allowed && mayGo(t, a)
			}
			if !allowed || !o.fits(m, left, a) {
				continue
			}
			if c := o.cost(m, gone, left, a, budgets); !found || c.compare(best) < 0 {
				best, found = c, true
			}
		}
	}
	return best, found
}

func mayGo(t placement.Task, a placement.Ask) bool {
	return t.Priority < a.Priority && !t.Stopping && !(t.Priority.Prod() && a.Priority.Prod())
}
