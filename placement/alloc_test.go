package placement_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// allocCell is a cell with one alloc set in plain lists, and its snapshot.
type allocCell struct {
	t        *rapid.T
	machines []placement.Machine
	tasks    map[schema.TaskName]placement.Task // allocs, and what runs inside
	snapshot *placement.Snapshot
}

func named(job string, index int) schema.TaskName {
	return schema.JobName{Cell: "c", User: "u", Job: job}.Task(index)
}

func (c *allocCell) draw(what string, most int) int { return rapid.IntRange(0, most).Draw(c.t, what) }

// left returns what is free in an alloc, and how many tasks of a job, and of all,
// are inside.
func (c *allocCell) left(a placement.Task, job string) (free schema.Resources, own, all int) {
	free = a.Limit
	for _, t := range c.tasks {
		if t.Alloc == a.Name && t.Machine == a.Machine {
			all++
			if free = free.Sub(t.Limit); t.Name.Job == job {
				own++
			}
		}
	}
	return free, own, all
}

// taken reports whether a task in an alloc has one of the ports in the network that they share.
func (c *allocCell) taken(a placement.Task, numbers []int) bool {
	for _, t := range c.tasks {
		if t.Alloc == a.Name && t.Machine == a.Machine && slices.ContainsFunc(t.AllocPorts, func(p schema.Port) bool { return slices.Contains(numbers, p.Port) }) {
			return true
		}
	}
	return false
}

// best is the slow way to find an alloc for an ask: the fewest tasks of its job,
// then the fewest tasks, then the ask's index, then the least room, then the lowest
// index; false if none takes it.
func (c *allocCell) best(a placement.Ask) (schema.TaskName, bool) {
	type candidate struct {
		name schema.TaskName
		free schema.Resources
		n    []int
	}
	var list []candidate
	for name, t := range c.tasks {
		free, own, all := c.left(t, a.Name.Job)
		if c.taken(t, a.AllocNumbers) {
			continue
		}
		if !t.IsAlloc || t.Stopping || !a.Limit.Fits(free) || a.Alloc.Job != "" && a.Alloc != name || a.AllocMax > 0 && own >= a.AllocMax {
			continue
		}
		other := 1
		if name.Index == a.Name.Index {
			other = 0
		}
		list = append(list, candidate{name, free, []int{own, all, other}})
	}
	if len(list) == 0 {
		return schema.TaskName{}, false
	}
	return slices.MinFunc(list, func(x, y candidate) int {
		return cmp.Or(slices.Compare(x.n, y.n), cmp.Compare(x.free.RAMBytes, y.free.RAMBytes), cmp.Compare(x.free.CPUMilli, y.free.CPUMilli),
			cmp.Compare(x.free.DiskBytes, y.free.DiskBytes), cmp.Compare(x.name.Index, y.name.Index))
	}).name, true
}

// fresh returns a snapshot that was made at once of what there is.
func (c *allocCell) fresh() *placement.Snapshot {
	var list []placement.Task
	for _, t := range c.tasks {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b placement.Task) int { return a.Name.Compare(b.Name) })
	return placement.NewSnapshot(c.machines, list)
}

func (c *allocCell) limit() schema.Resources {
	return schema.Resources{CPUMilli: int64(c.draw("cpu", 4)) * 500, RAMBytes: int64(c.draw("ram", 4)) << 29}
}

func (c *allocCell) set(t placement.Task) {
	c.tasks[t.Name] = t
	c.snapshot.SetTask(t)
}

func (c *allocCell) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"alloc": func(*rapid.T) {
			name := named("pair", c.draw("index", 2))
			t, ok := c.tasks[name]
			if !ok {
				t = placement.Task{Name: name, Machine: c.machines[c.draw("machine", 1)].Name, Priority: 100, IsAlloc: true}
			}
			t.Limit, t.Stopping = c.limit(), c.draw("stopping", 4) == 0
			c.set(t)
		},
		"drop": func(*rapid.T) {
			if t, ok := c.tasks[named("pair", c.draw("index", 2))]; ok {
				delete(c.tasks, t.Name)
				c.snapshot.RemoveTask(t.Name, t.Machine, 0)
			}
		},
		"leave": func(*rapid.T) {
			if t, ok := c.tasks[named([]string{"web", "log"}[c.draw("job", 1)], c.draw("index", 4))]; ok {
				delete(c.tasks, t.Name)
				c.snapshot.RemoveTask(t.Name, t.Machine, 0)
			}
		},
		"place": func(t *rapid.T) {
			a := placement.Ask{Name: named([]string{"web", "log"}[c.draw("job", 1)], c.draw("index", 4)), Priority: 100, Limit: c.limit(), AllocSet: named("pair", 0).JobName}
			if _, ok := c.tasks[a.Name]; ok {
				return
			}
			if c.draw("only", 3) == 0 {
				a.Alloc = named("pair", c.draw("index", 2))
			}
			a.AllocMax = c.draw("share", 2)
			ports := schema.Ports{}
			if n := c.draw("number", 3); n > 0 {
				a.AllocNumbers = []int{80 + n, 90 + n}
				ports = schema.NewPorts(schema.Port{Name: "a", Port: 80 + n}, schema.Port{Name: "b", Port: 90 + n})
			}
			want, fits := c.best(a)
			d := placement.Place(c.snapshot, []placement.Ask{a}, 1)[0]
			if d.Alloc != want || (d.Machine != "") != fits || fits && d.Machine != c.tasks[want].Machine {
				t.Fatalf("%s of %+v: alloc %s on %q, want %s (%t)", a.Name, a.Limit, d.Alloc, d.Machine, want, fits)
			}
			if !fits {
				checkSum(t, d)
				return
			}
			c.set(placement.Task{Name: a.Name, Machine: d.Machine, Priority: 100, Limit: a.Limit, Alloc: d.Alloc, AllocPorts: ports})
		},
		"": func(t *rapid.T) {
			if diff := gocmp.Diff(c.fresh().Describe(), c.snapshot.Describe()); diff != "" {
				t.Fatalf("a snapshot that was kept is not like a new one (-new +kept):\n%s", diff)
			}
			if !c.snapshot.CountsFill() {
				t.Fatal("how full the cell is, or what its tasks want, is not what its tasks say")
			}
		},
	}
}

// TestAllocsAgainstOracle: tasks go where the slow way puts them, and what is
// kept of allocs that come, go, shrink and grow is as found out from nothing.
func TestAllocsAgainstOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &allocCell{t: t, tasks: map[schema.TaskName]placement.Task{}}
		for i := range 2 {
			c.machines = append(c.machines, placement.Machine{
				Name: fmt.Sprintf("m%d", i), Up: true, Capacity: schema.Resources{CPUMilli: 8000, RAMBytes: 16 << 30, DiskBytes: 1 << 30},
			})
		}
		c.snapshot = c.fresh()
		c.snapshot.Configure(placement.Options{Preempt: true, Graceful: true})
		t.Repeat(c.actions())
	})
}
