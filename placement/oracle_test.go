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
	hit      map[string]int // victims of this pass
	tolerant bool           // asks do not mind taints
	// protected are jobs of which no task is evicted.
	protected map[schema.JobName]bool
	// forgives says of which anti-affinity the tasks that have it do not mind; nil for none.
	forgives func(*placement.Affinity) bool
}

func key(t placement.Task) string {
	return fmt.Sprint(t.Name.String(), "@", t.Machine, "#", t.Generation)
}

func newOracle(ms []placement.Machine, ts []placement.Task) *oracle {
	o := &oracle{machines: map[string]placement.Machine{}, tasks: map[string]placement.Task{}, asks: map[schema.TaskName]placement.Ask{}, hit: map[string]int{}}
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

// fits reports whether the ask has room beside the given tasks of the machine, and may be
// beside them and those of other machines.
func (o *oracle) fits(m placement.Machine, held []placement.Task, a placement.Ask) bool {
	return o.related(m, held, a) && o.hasRoom(m, held, a)
}

// related reports whether relations allow the ask beside the given tasks of a machine.
func (o *oracle) related(m placement.Machine, held []placement.Task, a placement.Ask) bool {
	all := slices.Clone(held)
	for _, t := range o.tasks {
		if t.Machine != m.Name {
			all = append(all, t)
		}
	}
	return o.near(m, all, a) && !o.repelled(m, all, a)
}

func (o *oracle) near(m placement.Machine, all []placement.Task, a placement.Ask) bool {
	if a.Relations == nil {
		return true
	}
	for i := range a.Relations.Affinity {
		f := &a.Relations.Affinity[i]
		if f.Weight != 0 {
			continue
		}
		if attribute(m, f.By) == "" {
			return false
		}
		some, here := false, false
		for _, t := range all {
			if v := attribute(o.machines[t.Machine], f.By); v != "" && picks(f, t.Name.User, t.Ask) {
				some, here = true, here || v == attribute(m, f.By)
			}
		}
		if !here && (some || !picks(f, a.Name.User, &a)) {
			return false
		}
	}
	return true
}

func (o *oracle) repelled(m placement.Machine, all []placement.Task, a placement.Ask) bool {
	repels := func(of, other *placement.Ask, user string, where placement.Machine, forgives func(*placement.Affinity) bool) bool {
		if of == nil || of.Relations == nil {
			return false
		}
		for i := range of.Relations.AntiAffinity {
			f := &of.Relations.AntiAffinity[i]
			if v := attribute(m, f.By); f.Weight == 0 && v != "" && v == attribute(where, f.By) && picks(f, user, other) && !forgives(f) {
				return true
			}
		}
		return false
	}
	none := func(*placement.Affinity) bool { return false }
	forgives := none
	if o.forgives != nil {
		forgives = o.forgives
	}
	return slices.ContainsFunc(all, func(t placement.Task) bool {
		where := o.machines[t.Machine]
		return repels(&a, t.Ask, t.Name.User, where, none) || repels(t.Ask, &a, a.Name.User, where, forgives)
	})
}

// picks reports whether an affinity is about a task.
func picks(f *placement.Affinity, user string, of *placement.Ask) bool {
	return of != nil && of.Relations != nil && (f.User == "" || f.User == user) && f.Selector.Matches(of.Relations.Labels)
}

func (o *oracle) hasRoom(m placement.Machine, held []placement.Task, a placement.Ask) bool {
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
	return o.first(m, devices, a) >= 0 && a.Limit.Fits(free) && len(a.Ports) <= ports
}

// admits reports whether nothing but room could be in the way.
func (o *oracle) admits(m placement.Machine, a placement.Ask) bool {
	return !slices.Contains(a.Avoid, m.Name) && (a.On == "" || a.On == m.Name) && o.welcomes(m, a) && o.withinMax(m, a) && o.withinSkew(m, a)
}

// withinSkew reports whether no limit of skew is in the way.
func (o *oracle) withinSkew(m placement.Machine, a placement.Ask) bool {
	for _, l := range a.MaxSkew {
		tasks := map[string]int{} // by domain that counts
		for _, other := range o.machines {
			if v := attribute(other, l.Attribute); v != "" && o.welcomes(other, a) && has(other, a) {
				tasks[v] = 0
			}
		}
		for _, t := range o.tasks {
			v := attribute(o.machines[t.Machine], l.Attribute)
			if _, counts := tasks[v]; (counts || v == attribute(m, l.Attribute)) && t.Name.JobName == a.Name.JobName && !t.Stopping {
				tasks[v]++
			}
		}
		fewest, here := 1000, tasks[attribute(m, l.Attribute)]
		for v, n := range tasks {
			if v != "" {
				fewest = min(fewest, n)
			}
		}
		if len(tasks) < l.MinDomains {
			fewest = 0
		}
		if attribute(m, l.Attribute) == "" || here+1-fewest > l.Max {
			return false
		}
	}
	return true
}

// welcomes reports whether a machine takes tasks like an ask, whatever it holds.
func (o *oracle) welcomes(m placement.Machine, a placement.Ask) bool {
	if slices.ContainsFunc(m.Conditions, func(k schema.ConditionKind) bool { return a.Priority < k.MinPriority() }) {
		return false
	}
	if !m.Up || m.Draining || m.Cordoned {
		return false
	}
	for _, x := range m.Taints {
		tolerated := o.tolerant || (x.Users == nil || slices.Contains(x.Users, a.Name.User)) &&
			slices.ContainsFunc(a.Tolerations, func(y placement.Toleration) bool {
				return slices.Contains([]string{"", x.Key}, y.Key) && slices.Contains([]string{"", x.Value}, y.Value)
			})
		if !tolerated {
			return false
		}
	}
	return meets(m, a.Constraints) && (len(a.AnyOf) == 0 || slices.ContainsFunc(a.AnyOf, func(all []placement.Constraint) bool { return meets(m, all) }))
}

func meets(m placement.Machine, all []placement.Constraint) bool {
	return !slices.ContainsFunc(all, func(c placement.Constraint) bool {
		return slices.Contains(c.Values, attribute(m, c.Attribute)) != (c.Op == placement.OpIn)
	})
}

func (o *oracle) withinMax(m placement.Machine, a placement.Ask) bool {
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
	unmet                                                     int // wishes, in percent of Weights.Wish
	excess                                                    float32
	since                                                     int64 // in the mean
}

func (v victims) compare(w victims) int {
	return cmp.Or(cmp.Compare(v.overruns, w.overruns), cmp.Compare(v.inDomain, w.inDomain), cmp.Compare(v.highest, w.highest),
		cmp.Compare(v.count, w.count), cmp.Compare(v.sum, w.sum), cmp.Compare(v.unmet, w.unmet),
		cmp.Compare(v.onMachine, w.onMachine), cmp.Compare(v.excess, w.excess), cmp.Compare(v.again, w.again), cmp.Compare(w.since, v.since))
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
	v.unmet = o.unmet(m, left, a)
	hit := map[string]int{}
	jobs := map[schema.JobName]int{}
	for _, t := range set {
		who, gathers := party(t)
		if gathers && hit[who]+o.hit[who] == 0 {
			for _, other := range set {
				if name, _ := party(other); name == who {
					v.count--
				}
			}
			for job, n := range o.gang(who, set) {
				v.count += n
				if left, ok := budgets[job]; ok {
					v.overruns += max(0, n-max(left, 0))
				}
			}
		}
		v.highest = max(v.highest, int(t.Priority))
		v.sum += int(t.Priority)
		if v.since += t.Since.UnixMilli(); t.Since.IsZero() {
			v.since += 1<<46 - t.Since.UnixMilli()
		}
		if hit[who]++; hit[who]+o.hit[who] > 1 {
			v.again++
		}
		jobs[t.Name.JobName]++
		if left, ok := budgets[t.Name.JobName]; ok && !gathers && jobs[t.Name.JobName] > left {
			v.overruns++
		}
	}
	v.since /= int64(max(len(set), 1))
	return v
}

// unmet returns what an ask wishes and would not have on a machine beside some tasks.
func (o *oracle) unmet(m placement.Machine, left []placement.Task, a placement.Ask) (sum int) {
	for _, p := range a.Preferences {
		if meets(m, []placement.Constraint{p.Constraint}) != (p.Weight > 0) {
			sum += max(p.Weight, -p.Weight)
		}
	}
	if m.Overloaded || slices.ContainsFunc(left, func(t placement.Task) bool { return !t.Stopping && slices.Contains(a.Apart, t.Name.JobName) }) {
		w := placement.DefaultWeights()
		sum += int(100 * w.Noise / w.Wish)
	}
	if a.FirstOf != nil {
		sum += 100 * o.first(m, o.freeDevices(m, left), a)
	}
	if a.Relations == nil {
		return sum
	}
	// others are the tasks in the domain of the machine that a relation is about.
	others := func(f *placement.Affinity, is func(placement.Task) bool) bool {
		for _, t := range o.tasks {
			if t.Machine != m.Name && attribute(m, f.By) != "" && attribute(o.machines[t.Machine], f.By) == attribute(m, f.By) && is(t) {
				return true
			}
		}
		return attribute(m, f.By) != "" && slices.ContainsFunc(left, is)
	}
	near := func(f *placement.Affinity) bool {
		return others(f, func(t placement.Task) bool { return picks(f, t.Name.User, t.Ask) })
	}
	for i := range a.Relations.Affinity {
		if f := &a.Relations.Affinity[i]; f.Weight != 0 && !near(f) {
			sum += f.Weight
		}
	}
	for i := range a.Relations.AntiAffinity {
		if f := &a.Relations.AntiAffinity[i]; f.Weight != 0 && near(f) {
			sum += f.Weight
		}
	}
	return sum + o.wished(a, others)
}

// wished returns what others wish of an ask: more where those are from which it is to be apart, less where those are
// that it is to be near. others says whether some tasks are in the domain of a machine.
func (o *oracle) wished(a placement.Ask, others func(*placement.Affinity, func(placement.Task) bool) bool) (sum int) {
	seen := map[string]bool{}
	own := [][]placement.Affinity{a.Relations.Affinity, a.Relations.AntiAffinity}
	has := func(list []placement.Affinity, f *placement.Affinity, weight int) bool {
		return slices.ContainsFunc(list, func(x placement.Affinity) bool {
			return x.Text() == f.Text() && x.User == f.User && (weight == 0 || x.Weight == weight)
		})
	}
	for _, of := range o.tasks {
		if of.Name.User != a.Name.User || of.Ask == nil || of.Ask.Relations == nil {
			continue
		}
		for i, list := range [][]placement.Affinity{of.Ask.Relations.Affinity, of.Ask.Relations.AntiAffinity} {
			for n := range list {
				f := &list[n]
				id := fmt.Sprint(i, f.Text(), f.User, f.Weight)
				if f.Weight == 0 || seen[id] || !picks(f, a.Name.User, &a) || has(own[i], f, 0) {
					continue
				}
				seen[id] = true
				if others(f, func(t placement.Task) bool {
					if t.Ask == nil || t.Ask.Relations == nil || t.Name.User != a.Name.User {
						return false
					}
					return has([][]placement.Affinity{t.Ask.Relations.Affinity, t.Ask.Relations.AntiAffinity}[i], f, f.Weight)
				}) {
					sum += []int{-1, 1}[i] * f.Weight
				}
			}
		}
	}
	return sum
}

// party says who goes with a task, if others do.
func party(t placement.Task) (who string, gathers bool) {
	if t.Gang != "" {
		return "gang " + t.Gang + " of " + t.Name.User, true
	}
	return t.Name.JobName.String(), t.Together
}

// gang counts the tasks of a party that run, by job, some of which may have been taken away.
func (o *oracle) gang(who string, gone []placement.Task) map[schema.JobName]int {
	n, seen := map[schema.JobName]int{}, map[string]bool{}
	for _, t := range append(slices.Collect(maps.Values(o.tasks)), gone...) {
		if name, _ := party(t); name == who && !t.Stopping && !seen[key(t)] {
			seen[key(t)] = true
			n[t.Name.JobName]++
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
		if !o.admits(m, a) || !o.near(m, slices.Collect(maps.Values(o.tasks)), a) {
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
				allowed = allowed && o.mayGo(t, a)
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

func (o *oracle) mayGo(t placement.Task, a placement.Ask) bool {
	within := t.Priority/100 == a.Priority/100 && a.Priority >= 200 // no task of production evicts one of it, none of monitoring one of that
	return t.Priority < a.Priority && !t.Stopping && !within && !o.protected[t.Name.JobName]
}
