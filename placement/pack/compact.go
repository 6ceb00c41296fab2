package pack

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/reserve"
	"github.com/musterhq/muster/schema"
)

// Cell is what is compacted: what has to have room, and the machines that it has room on.
type Cell struct {
	Machines []placement.Machine
	// Held is what each machine has whatever else is there, such as the tasks of system
	// jobs.
	Held []placement.Task
	Asks []placement.Ask
	// Reserved is what the cell holds back for each of Asks once it runs, as estimated from
	// its use: what is below production has room in the rest. nil is their limits.
	Reserved []schema.Resources
	// Order is which orders of machines are tried: cells that are counted together have
	// different ones.
	Order uint64
}

// Compacted is how few machines a cell's work has room on. Field names are stable.
type Compacted struct {
	Machines int `json:"machines"` // of the cell
	Tasks    int `json:"tasks"`    // that were to be placed
	Pending  int `json:"pendingAllowed"`
	// Clones is how many times the cell's machines were there to begin with, since the
	// work has no room on fewer: 1, if it has on the cell itself.
	Clones int `json:"clones"`
	// Softened are the jobs, as user/job, that ask for more than half of the cell of some
	// resource, or of the devices of a kind: what they want of machines was taken as a wish.
	Softened []string `json:"softened"`
	Seeds    int      `json:"seeds"`
	// Value is the 90th percentile of PerSeed, and Min and Max are its ends: machines.
	Value   int   `json:"value"`
	Min     int   `json:"min"`
	Max     int   `json:"max"`
	PerSeed []int `json:"perSeed"`
}

// mostClones bounds how many times a cell's machines are taken.
const mostClones = 16

// Compact finds for each of some seeds, 0 for 11, how few machines of a cell, in random
// order, hold its work when it is packed anew (Borg §5.1). It errs if that has no room on the
// cell's machines many times over, and if there are no machines, or no work.
func Compact(c Cell, seeds int, options placement.Options) (*Compacted, error) {
	switch {
	case len(c.Machines) == 0 || len(c.Asks) == 0:
		return nil, fmt.Errorf("%s and %s: want at least one of each", schema.Count(len(c.Machines), "machine"), schema.Count(len(c.Asks), "task"))
	case seeds < 0 || seeds > maxSeeds:
		return nil, fmt.Errorf("seeds %d: want 1 to %d", seeds, maxSeeds)
	}
	out := &Compacted{
		Machines: len(c.Machines), Tasks: len(c.Asks), Pending: len(c.Asks) * pendingShare / 1000, Softened: []string{}, Seeds: orElse(seeds, 11),
	}
	c.Asks, out.Softened = soften(&c)
	p := c.packing(options)
	p.pending = out.Pending
	for out.Clones = 1; ; out.Clones *= 2 {
		if out.Clones > mostClones {
			return nil, fmt.Errorf("the work has no room on %d times the machines of the cell", mostClones)
		}
		cloned := c.times(out.Clones)
		p.held = cloned.heldBy()
		out.PerSeed = out.PerSeed[:0]
		for seed := range out.Seeds {
			order := shuffled(cloned.Machines, c.Order<<32+uint64(seed))
			n, _ := p.least(order)
			if n > len(order) {
				break
			}
			out.PerSeed = append(out.PerSeed, n)
		}
		if len(out.PerSeed) == out.Seeds {
			break
		}
	}
	sorted := slices.Sorted(slices.Values(out.PerSeed))
	out.Min, out.Max, out.Value = sorted[0], sorted[len(sorted)-1], sorted[(9*len(sorted)+9)/10-1]
	return out, nil
}

// Pack packs the work of a cell once on all of its machines, and returns on which each task
// is that has room.
func Pack(c Cell, options placement.Options) map[schema.TaskName]string {
	p := c.packing(options)
	p.held = c.heldBy()
	return p.place(c.Machines).on
}

// packing returns the work of a cell, without what its machines hold.
func (c Cell) packing(options placement.Options) *packing {
	p := &packing{options: options, schedulers: 1, asks: c.Asks}
	if c.Reserved != nil {
		p.reserved = make(map[schema.TaskName]schema.Resources, len(c.Asks))
		for i := range c.Asks {
			p.reserved[c.Asks[i].Name] = c.Reserved[i]
		}
	}
	return p
}

// maxSeeds bounds how many orders are tried.
const maxSeeds = 1000

// times returns the cell with so many of each of its machines.
func (c Cell) times(n int) Cell {
	out := c
	for copied := 2; copied <= n; copied++ {
		named := func(machine string) string { return fmt.Sprintf("%s~%d", machine, copied) }
		for _, m := range c.Machines {
			m.Name = named(m.Name)
			out.Machines = append(slices.Clip(out.Machines), m)
		}
		for _, t := range c.Held {
			t.Machine = named(t.Machine)
			out.Held = append(slices.Clip(out.Held), t)
		}
	}
	return out
}

// heldBy returns what each machine has, by name.
func (c Cell) heldBy() map[string][]placement.Task {
	out := map[string][]placement.Task{}
	for _, t := range c.Held {
		out[t.Machine] = append(out[t.Machine], t)
	}
	return out
}

// soften returns the asks of a cell, and which of its jobs ask for more than half of it: what
// these want of machines is a wish, as the cell may be clones of a few machines of a real one.
func soften(c *Cell) (asks []placement.Ask, jobs []string) {
	large := largerThanHalf(c)
	jobs = []string{}
	wishes := map[schema.JobName]*placement.Relations{} // tasks of a job share them
	for i := range c.Asks {
		a := c.Asks[i]
		if (len(a.Constraints)+len(a.AnyOf)+len(a.PerDomain)+len(a.MaxSkew) > 0 || firm(a.Relations)) && large[a.Name.JobName] {
			if name := a.Name.JobName.Short(); !slices.Contains(jobs, name) {
				jobs = append(jobs, name)
			}
			wish(&a)
			if wishes[a.Name.JobName] == nil && a.Relations != nil {
				wishes[a.Name.JobName] = wished(a.Relations)
			}
			a.Relations = wishes[a.Name.JobName]
		}
		asks = append(asks, a)
	}
	slices.Sort(jobs)
	return asks, jobs
}

// largerThanHalf returns the jobs whose dominant share, that of what they ask most of, is more
// than half of the cell: of resources, or of the devices of a kind.
func largerThanHalf(c *Cell) map[schema.JobName]bool {
	has, wants := map[string]int64{}, map[schema.JobName]map[string]int64{}
	for i := range c.Machines {
		m := &c.Machines[i]
		for _, d := range schema.Dimensions() {
			has[string(d)] += m.Capacity.Of(d)
		}
		for _, d := range m.Devices {
			has["device "+d.Kind] += int64(d.Count) * placement.DeviceMilli
		}
	}
	for i := range c.Asks {
		a := &c.Asks[i]
		of := wants[a.Name.JobName]
		if of == nil {
			of = map[string]int64{}
			wants[a.Name.JobName] = of
		}
		for _, d := range schema.Dimensions() {
			of[string(d)] += a.Limit.Of(d)
		}
		for _, d := range slices.Concat(append([][]placement.DeviceAsk{a.Devices}, a.FirstOf[:min(len(a.FirstOf), 1)]...)...) {
			of["device "+d.Kind] += int64(d.Count) * int64(orElse(d.Milli, placement.DeviceMilli))
		}
	}
	large := make(map[schema.JobName]bool, len(wants))
	for job, of := range wants {
		for what, amount := range of {
			large[job] = large[job] || amount > 0 && 2*amount > has[what]
		}
	}
	return large
}

// wish has what must hold of a machine beside relations be preferred only. Where the job's tasks
// are bounded by domain nothing is left of it but the spread that all jobs have, or that over the
// attribute of the first skew.
func wish(a *placement.Ask) {
	a.Preferences = slices.Clone(a.Preferences)
	for _, constraint := range a.Constraints {
		a.Preferences = append(a.Preferences, placement.Preference{Constraint: constraint, Weight: 100})
	}
	for _, all := range a.AnyOf {
		for _, constraint := range all {
			a.Preferences = append(a.Preferences, placement.Preference{Constraint: constraint, Weight: max(1, 100/len(all))})
		}
	}
	if a.Spread == "" && len(a.MaxSkew) > 0 {
		a.Spread = a.MaxSkew[0].Attribute
	}
	a.Constraints, a.AnyOf, a.PerDomain, a.MaxSkew = nil, nil, nil, nil
}

// firm reports whether relations have any that must hold.
func firm(r *placement.Relations) bool {
	must := func(a placement.Affinity) bool { return a.Weight == 0 }
	return r != nil && (slices.ContainsFunc(r.Affinity, must) || slices.ContainsFunc(r.AntiAffinity, must))
}

// wished returns relations with what must hold as a wish.
func wished(r *placement.Relations) *placement.Relations {
	soft := func(list []placement.Affinity) []placement.Affinity {
		out := slices.Clone(list)
		for i := range out {
			out[i].Weight = orElse(out[i].Weight, 100)
		}
		return out
	}
	return &placement.Relations{Labels: r.Labels, Affinity: soft(r.Affinity), AntiAffinity: soft(r.AntiAffinity)}
}

// CellOf returns a trace as a cell, without the tasks whose phase is Failed.
func CellOf(nodes []Node, tasks []Task) Cell {
	return Cell{Machines: machines(nodes, GPUDevices), Asks: asks(ran(tasks), GPUDevices)}
}

// ran returns the tasks whose phase is not Failed.
func ran(tasks []Task) []Task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t Task) bool { return t.Phase == "Failed" })
}

// WorkOf returns a trace as a cell as CellOf does, with the priorities and users of the tasks
// where the trace says them, and what a cell would hold back where it says what all of them
// use; and the tasks, in the order of the asks.
func WorkOf(nodes []Node, tasks []Task) (Cell, []Task) {
	c, tasks := CellOf(nodes, tasks), ran(tasks)
	measured := true
	for i := range tasks {
		t, a := &tasks[i], &c.Asks[i]
		if t.Ranked {
			a.Priority = t.Priority
		}
		if t.User != "" {
			a.Name.User = t.User
		}
		c.Reserved = append(c.Reserved, reserve.Of(a.Limit, t.Used))
		measured = measured && t.Measured
	}
	if !measured {
		c.Reserved = nil
	}
	return c, tasks
}
