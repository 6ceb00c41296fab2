package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// gangCell is a cell in which some jobs of a gang ask for places.
type gangCell struct {
	machines []placement.Machine
	asks     []placement.Ask
	jobs     []placement.GangJob
}

// machine adds a machine of so many cores.
func (c *gangCell) machine(name string, cores int64, attributes ...string) {
	m := placement.Machine{Name: name, Up: true, Capacity: schema.Resources{CPUMilli: cores}, Attributes: map[string]string{}}
	for i := 0; i < len(attributes); i += 2 {
		m.Attributes[attributes[i]] = attributes[i+1]
	}
	c.machines = append(c.machines, m)
}

// job adds a job of the gang, of so many tasks of so many cores.
func (c *gangCell) job(name string, tasks int, cores int64, change func(*placement.Ask)) {
	j := schema.JobName{Cell: "c", User: "u", Job: name}
	c.jobs = append(c.jobs, placement.GangJob{Job: j, Tasks: tasks})
	a := placement.Ask{Priority: 100, Limit: schema.Resources{CPUMilli: cores}}
	if change != nil {
		change(&a)
	}
	for i := range tasks {
		a.Name = j.Task(i)
		c.asks = append(c.asks, a)
	}
}

// list returns the asks of the gang.
func (c *gangCell) list() []placement.Ask {
	list := append([]placement.Ask{}, c.asks...)
	for i := range list {
		list[i].Gang = &placement.Gang{Name: "g", Jobs: c.jobs}
	}
	return list
}

// place returns how many of the gang have got a place.
func (c *gangCell) place() (n int) {
	for _, d := range placement.Place(placement.NewSnapshot(c.machines, nil), c.list(), 1) {
		if d.Machine != "" {
			n++
		}
	}
	return n
}

// near has tasks be near those of a job.
func near(own, other, by string) func(*placement.Ask) {
	return func(a *placement.Ask) {
		a.Relations = &placement.Relations{Labels: map[string]string{"job": own}}
		if other != "" {
			selector, err := schema.ParseSelector("job=" + other)
			if err != nil {
				panic(err)
			}
			a.Relations.Affinity = []placement.Affinity{{Selector: selector, By: by}}
		}
	}
}

// TestGangFindsRoom: a gang for which there is room gets it, whatever its jobs are named.
func TestGangFindsRoom(t *testing.T) {
	t.Parallel()
	kindX := func(a *placement.Ask) {
		a.Constraints = []placement.Constraint{{Attribute: "kind", Op: placement.OpIn, Values: []string{"x"}}}
	}
	for what, fill := range map[string]func(c *gangCell){
		"one job fits on one machine only": func(c *gangCell) {
			c.machine("m1", 6, "kind", "x")
			c.machine("m2", 6)
			c.machine("m3", 6)
			c.job("a", 2, 4, nil)
			c.job("b", 1, 4, kindX)
		},
		"near itself, in the larger rack": func(c *gangCell) {
			for i := range 6 {
				c.machine(fmt.Sprint("m", i), 4, "rack", string("aabbbb"[i]))
			}
			c.job("mpi", 4, 4, near("mpi", "mpi", "rack"))
		},
		"near another job, in the largest zone": func(c *gangCell) {
			for i := range 6 {
				c.machine(fmt.Sprint("m", i), 4, "rack", string("abbccc"[i]), "zone", string("122333"[i]))
			}
			c.job("server", 1, 2, near("server", "", ""))
			c.job("worker", 2, 4, near("worker", "server", "zone"))
		},
		"two pairs near each other": func(c *gangCell) {
			for i := range 4 {
				c.machine(fmt.Sprint("m", i), 4, "rack", string("aabb"[i]))
			}
			c.job("s1", 1, 1, near("s1", "", ""))
			c.job("s2", 1, 2, near("s2", "", ""))
			c.job("w1", 2, 3, near("w1", "s1", "rack"))
			c.job("w2", 2, 2, near("w2", "s2", "rack"))
		},
		"as it only goes into the machines": func(c *gangCell) {
			c.machine("m1", 6)
			c.machine("m2", 4)
			c.job("a", 2, 2, nil)
			c.job("b", 2, 3, nil)
		},
	} {
		c := &gangCell{}
		fill(c)
		if n := c.place(); n != len(c.asks) {
			t.Errorf("%s: %d of %d tasks have a place", what, n, len(c.asks))
		}
	}
}

// fits reports, by trying all that is possible, whether asks have room together.
func fits(machines []placement.Machine, free []int64, asks []placement.Ask) bool {
	if len(asks) == 0 {
		return true
	}
	for i := range machines {
		if len(asks[0].Constraints) > 0 && machines[i].Attributes["kind"] != "x" || asks[0].Limit.CPUMilli > free[i] {
			continue
		}
		free[i] -= asks[0].Limit.CPUMilli
		ok := fits(machines, free, asks[1:])
		free[i] += asks[0].Limit.CPUMilli
		if ok {
			return true
		}
	}
	return false
}

// TestGangAsBruteForce compares gangs of several jobs with a search through all that is possible.
func TestGangAsBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &gangCell{}
		var free []int64
		for i := range rapid.IntRange(1, 4).Draw(t, "machines") {
			free = append(free, rapid.Int64Range(2, 10).Draw(t, "cores"))
			c.machine(fmt.Sprint("m", i), free[i], "kind", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "kind"))
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
			change := func(*placement.Ask) {}
			if rapid.Bool().Draw(t, "bound") {
				change = func(a *placement.Ask) {
					a.Constraints = []placement.Constraint{{Attribute: "kind", Op: placement.OpIn, Values: []string{"x"}}}
				}
			}
			c.job(fmt.Sprint("j", i), rapid.IntRange(1, 3).Draw(t, "tasks"), rapid.Int64Range(1, 5).Draw(t, "wants"), change)
		}
		want := 0
		if fits(c.machines, free, c.asks) {
			want = len(c.asks)
		}
		if n := c.place(); n != want {
			t.Fatalf("%d of %d tasks have a place, want %d", n, len(c.asks), want)
		}
	})
}

// TestGangWaitsForNothing: a gang that has found no room is not searched for again before
// something has changed that may help.
func TestGangWaitsForNothing(t *testing.T) {
	t.Parallel()
	c := &gangCell{}
	for i := range 20 {
		c.machine(fmt.Sprint("m", i), 4)
	}
	c.job("a", 19, 3, nil)
	c.job("b", 3, 2, nil)
	s := placement.NewSnapshot(c.machines, nil)
	pass := func(what string, want int) {
		t.Helper()
		before := s.Searches()
		placed := 0
		for _, d := range placement.Place(s, c.list(), 1) {
			if d.Machine != "" {
				placed++
			}
		}
		if n := s.Searches() - before; n != want {
			t.Errorf("%s: %d searches, want %d", what, n, want)
		}
		if placed != 0 && want == 0 {
			t.Errorf("%s: %d tasks are placed", what, placed)
		}
	}
	other := placement.Task{Name: schema.JobName{Cell: "c", User: "v", Job: "o"}.Task(0), Generation: 1, Machine: "m0", Priority: 100, Limit: schema.Resources{CPUMilli: 1}}
	pass("at first", 1)
	pass("again", 0)
	s.SetTask(other)
	pass("with less room", 0)
	pass("with less room, again", 0)
	s.RemoveTask(other.Name, other.Machine, other.Generation)
	pass("with more room", 1)
	pass("with more room, again", 0)
	s.SetMachine(placement.Machine{Name: "n", Up: true, Capacity: schema.Resources{CPUMilli: 1}})
	pass("with a machine more", 1)
}

// TestGangBesideHopelessOnes: gangs that find no room, of which the search for each would cost all that a pass may, keep
// no other one from its search: in the next passes if nothing changes, and in some if something does in each.
func TestGangBesideHopelessOnes(t *testing.T) {
	t.Parallel()
	for _, changes := range []bool{false, true} {
		machines := &gangCell{}
		for i := range 1000 {
			machines.machine(fmt.Sprint("m", i), 1)
		}
		for i := range 60 {
			machines.machine(fmt.Sprint("n", i), 7)
		}
		var asks []placement.Ask
		for n := range 5 {
			c := &gangCell{}
			for i := range 120 { // two on a machine never fit
				c.job(fmt.Sprintf("h%d-%d", n, i), 1, 4, nil)
			}
			for _, a := range c.list() {
				a.Gang.Name, a.Priority = fmt.Sprint("hopeless", n), 150
				asks = append(asks, a)
			}
		}
		c := &gangCell{}
		machines.machine("a1", 6, "kind", "x")
		machines.machine("a2", 6, "kind", "y")
		machines.machine("a3", 6, "kind", "y")
		c.job("a", 2, 4, func(a *placement.Ask) {
			a.Constraints = []placement.Constraint{{Attribute: "kind", Op: placement.OpIn, Values: []string{"x", "y"}}}
		})
		c.job("b", 1, 4, func(a *placement.Ask) {
			a.Constraints = []placement.Constraint{{Attribute: "kind", Op: placement.OpIn, Values: []string{"x"}}}
		})
		for i := range 6 {
			c.job(fmt.Sprint("c", i), 1, 1, nil)
		}
		asks = append(asks, c.list()...)
		s := placement.NewSnapshot(machines.machines, nil)
		task := func(n int) placement.Task {
			return placement.Task{Name: schema.JobName{Cell: "c", User: "v", Job: "o"}.Task(n), Generation: 1, Machine: fmt.Sprint("n", n%2), Priority: 200, Limit: schema.Resources{CPUMilli: 7}}
		}
		s.SetTask(task(0))
		placed, passes := 0, 0
		for ; placed == 0 && passes < 40; passes++ {
			for _, d := range placement.Place(s, asks, 1) {
				if d.Machine != "" {
					placed++
				}
			}
			if changes { // one task ends, and another one begins elsewhere
				s.SetTask(task(passes + 1))
				old := task(passes)
				s.RemoveTask(old.Name, old.Machine, old.Generation)
			}
		}
		if placed != len(c.asks) {
			t.Errorf("changes %t: %d tasks are placed in %d passes, want %d", changes, placed, passes, len(c.asks))
		}
	}
}

// TestGangSaysWhy: each task of a gang that gets no place says why it has none for itself, and the
// others whose reason they give.
func TestGangSaysWhy(t *testing.T) {
	t.Parallel()
	c := &gangCell{}
	c.machine("m1", 4)
	c.job("huge", 1, 9, nil)
	c.job("wrong", 1, 1, func(a *placement.Ask) {
		a.Constraints = []placement.Constraint{{Attribute: "rack", Op: placement.OpIn, Values: []string{"z"}}}
	})
	c.job("worker", 1, 1, nil)
	got := map[string]placement.Why{}
	for _, d := range placement.Place(placement.NewSnapshot(c.machines, nil), c.list(), 1) {
		got[d.Name.Job] = d.Why
	}
	for job, want := range map[string]struct {
		of     string
		reason placement.Reason
	}{"huge": {"", placement.ReasonCPU}, "wrong": {"", placement.ReasonConstraint}, "worker": {"u/huge/0", placement.ReasonCPU}} {
		if w := got[job]; w.Of != want.of || len(w.Refused) != 1 || w.Refused[0].Reason != want.reason || w.Alone {
			t.Errorf("%s: %+v, want %+v", job, w, want)
		}
	}
	c = &gangCell{}
	c.machine("m1", 4)
	c.job("a", 2, 3, nil)
	for _, d := range placement.Place(placement.NewSnapshot(c.machines, nil), c.list(), 1) {
		if !d.Why.Alone || (d.Why.Of == "") != (d.Name.Index == 1) {
			t.Errorf("%s would fit alone, as the other one would: %+v", d.Name.Short(), d.Why)
		}
	}
}

// TestGangHoldsAll: a gang that has waited for long holds all machines that it needs, so that nothing
// takes what opens on one of them; of two gangs one does.
func TestGangHoldsAll(t *testing.T) {
	t.Parallel()
	c := &gangCell{}
	var held []placement.Task
	for i := range 4 {
		name := fmt.Sprint("m", i)
		c.machine(name, 4)
		held = append(held, placement.Task{Name: schema.JobName{Cell: "c", User: "v", Job: "s"}.Task(i), Machine: name, Priority: 100, Limit: schema.Resources{CPUMilli: 3}})
	}
	c.job("a", 2, 4, nil)
	c.job("b", 2, 2, nil) // both on one machine
	asks := c.list()
	for i := range asks {
		asks[i].Waited = placement.DefaultReserveAfter
	}
	other := asks[0]
	other.Gang, other.Together, other.Waited = nil, 2, other.Waited-1
	for i := range 2 {
		other.Name = schema.JobName{Cell: "c", User: "u", Job: "other"}.Task(i)
		asks = append(asks, other)
	}
	for i := range 4 {
		asks = append(asks, placement.Ask{Name: schema.JobName{Cell: "c", User: "v", Job: "late"}.Task(i), Priority: 100, Limit: schema.Resources{CPUMilli: 1}})
	}
	s := placement.NewSnapshot(c.machines, held)
	for pass := range 2 { // in the second one nothing is searched for again
		holds, late := map[string]bool{}, 0
		for _, d := range placement.Place(s, asks, 1) {
			switch {
			case d.Name.Job == "late" && d.Machine != "":
				late++
				s.RemoveTask(d.Name, d.Machine, 0)
			case d.Name.Job == "late":
				if said := d.Why.String(); strings.Contains(said, "held for //0") || !strings.Contains(said, "held for u/a/0") {
					t.Errorf("pass %d: %s: %s", pass, d.Name.Short(), said)
				}
			case d.Name.Job == "other" && d.Why.Held != "":
				t.Errorf("pass %d: a second gang holds %v", pass, d.Why.Holds)
			case d.Name.Job == "a" || d.Name.Job == "b":
				holds[d.Why.Held] = true
				if len(d.Why.Holds) != 3 {
					t.Errorf("pass %d: %s holds %v, want three machines", pass, d.Name.Short(), d.Why.Holds)
				}
			}
		}
		if len(holds) != 3 || holds[""] || late != 1 {
			t.Errorf("pass %d: the gang holds %v, and %d tasks come after it, want three machines and one", pass, holds, late)
		}
	}
}

// BenchmarkGangWithoutRoom is a pass in which a gang waits that does not fit, in a cell in which
// nothing changes meanwhile, or a machine gets more room each time.
func BenchmarkGangWithoutRoom(b *testing.B) {
	for _, changes := range []bool{false, true} {
		b.Run(fmt.Sprintf("changes=%t", changes), func(b *testing.B) {
			c := &gangCell{}
			for i := range 10000 {
				c.machine(fmt.Sprint("m", i), []int64{1, 4}[i%100/99]) // 100 of them have room for one task
			}
			c.job("a", 99, 3, nil)
			c.job("b", 3, 2, nil)
			s := placement.NewSnapshot(c.machines, nil)
			list := c.list()
			placement.Place(s, list, 1)
			for i := 0; b.Loop(); i++ {
				if changes {
					t := placement.Task{Name: schema.JobName{Cell: "c", User: "v", Job: "o"}.Task(0), Generation: 1, Machine: "m99", Priority: 100, Limit: schema.Resources{CPUMilli: 2}}
					s.SetTask(t)
					placement.Place(s, list, 1)
					s.RemoveTask(t.Name, t.Machine, t.Generation)
				}
				placement.Place(s, list, 1)
			}
			b.ReportMetric(float64(s.Searches())/float64(b.N), "searches/op")
		})
	}
}
