package pack

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// uniform is a cell of machines with some cores each, in two racks, of which each has one
// core taken, and one job of some tasks with so many each.
func uniform(machines, cores, tasks, each int) Cell {
	var c Cell
	for i := range machines {
		m := placement.Machine{
			Name: fmt.Sprintf("m%02d", i), Up: true, Attributes: map[string]string{"rack": fmt.Sprintf("r%d", i%2)},
			Capacity: schema.Resources{CPUMilli: int64(cores) * 1000, RAMBytes: 1 << 40},
		}
		c.Machines = append(c.Machines, m)
		c.Held = append(c.Held, placement.Task{
			Name: schema.TaskName{JobName: schema.JobName{Cell: "c", User: "u", Job: "every"}, Index: i}, Machine: m.Name, Limit: schema.Resources{CPUMilli: 1000},
		})
	}
	for i := range tasks {
		c.Asks = append(c.Asks, placement.Ask{
			Name:  schema.TaskName{JobName: schema.JobName{Cell: "c", User: "u", Job: "web"}, Index: i},
			Limit: schema.Resources{CPUMilli: int64(each) * 1000},
		})
	}
	return c
}

// TestCompact compacts cells of which it is plain how many machines they need.
func TestCompact(t *testing.T) {
	t.Parallel()
	bound := func(c Cell, most int) Cell {
		for i := range c.Asks {
			c.Asks[i].Constraints = []placement.Constraint{{Attribute: "rack", Op: placement.OpIn, Values: []string{"r1"}}}
			if most > 0 {
				c.Asks[i].PerDomain = []placement.DomainLimit{{Attribute: placement.MachineAttribute, Max: most}}
			}
		}
		return c
	}
	apart := func(c Cell) Cell {
		selector, err := schema.ParseSelector("app=web")
		if err != nil {
			t.Fatal(err)
		}
		r := &placement.Relations{Labels: map[string]string{"app": "web"}, AntiAffinity: []placement.Affinity{{Selector: selector, By: placement.MachineAttribute}}}
		for i := range c.Asks {
			c.Asks[i].Relations = r
		}
		return c
	}
	with := func(c Cell, where placement.Where) Cell {
		for i := range c.Asks {
			c.Asks[i].Where = where
		}
		return c
	}
	gpus := func(c Cell) Cell {
		for i := range c.Machines {
			c.Machines[i].Devices = []placement.Device{{Kind: "gpu", Count: 1}}
		}
		for i := range c.Asks {
			c.Asks[i].Devices = []placement.DeviceAsk{{Kind: "gpu", Count: 1}}
		}
		return c
	}
	nowhere := [][]placement.Constraint{{{Attribute: "rack", Op: placement.OpIn, Values: []string{"r8"}}}, {{Attribute: "rack", Op: placement.OpIn, Values: []string{"r9"}}}}
	skewed := []placement.SkewLimit{{Attribute: "rack", Max: 1, MinDomains: 3}} // there are two
	for name, c := range map[string]struct {
		cell        Cell
		least, most int // machines, by the order
		clones      int
		soft        bool
	}{
		"two on each machine beside what it holds":           {uniform(20, 5, 10, 2), 5, 5, 1, false},
		"the work has room on four times the machines":       {uniform(2, 5, 16, 2), 8, 8, 4, false},
		"a job of less than half of the cell keeps its rack": {bound(uniform(20, 9, 20, 4), 2), 11, 20, 1, false},
		"a larger one need not":                              {bound(uniform(20, 9, 23, 4), 1), 12, 12, 1, true},
		"a small job of many tasks keeps its rack":           {bound(uniform(20, 9, 40, 1), 0), 6, 15, 1, false},
		"one with most of the devices need not":              {gpus(bound(uniform(20, 9, 11, 1), 0)), 11, 11, 1, true},
		"a job of less than half of the cell stays apart":    {apart(uniform(20, 5, 10, 2)), 10, 10, 1, false},
		"a larger one need not stay apart":                   {apart(uniform(20, 5, 26, 2)), 13, 13, 1, true},
		"a larger one needs none of its alternatives":        {with(uniform(20, 9, 23, 4), placement.Where{AnyOf: nowhere}), 12, 12, 1, true},
		"a larger one need not be even":                      {with(uniform(20, 9, 23, 4), placement.Where{MaxSkew: skewed}), 12, 12, 1, true},
		"two of a thousand may be picky":                     {uniform(600, 3, 1000, 2), 998, 998, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Compact(c.cell, 3, placement.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Min < c.least || r.Max > c.most {
				t.Errorf("%d machines: want %d to %d", r.PerSeed, c.least, c.most)
			}
			if r.Clones != c.clones || (len(r.Softened) > 0) != c.soft {
				t.Errorf("%d clones, softened %q: want %d, %t", r.Clones, r.Softened, c.clones, c.soft)
			}
			if r.Min != slices.Min(r.PerSeed) || r.Max != slices.Max(r.PerSeed) {
				t.Errorf("%d to %d, of %d", r.Min, r.Max, r.PerSeed)
			}
		})
	}
}

// TestCompactPercentile wants the 90th percentile of 11 orders: the tenth.
func TestCompactPercentile(t *testing.T) {
	t.Parallel()
	nodes, tasks := load(t, "testdata", "nodes.csv", "tasks.csv")
	c := CellOf(nodes, tasks)
	r, err := Compact(c, 0, placement.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sorted := slices.Sorted(slices.Values(r.PerSeed))
	if len(sorted) != 11 || r.Value != sorted[9] || r.Min == r.Max {
		t.Errorf("%d of %d: want the tenth of 11 that differ", r.Value, sorted)
	}
	if _, err := Compact(Cell{Machines: c.Machines[:1], Asks: c.Asks}, 1, placement.Options{}); err == nil {
		t.Error("work for a cell has room on one machine, 16 times over")
	}
}
