package rebalance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/schema"
)

// amounts are CPU in cores, RAM in GiB and whole GPUs.
type amounts [3]int

func (a amounts) fits(free amounts) bool {
	return a[0] <= free[0] && a[1] <= free[1] && a[2] <= free[2]
}

func (a amounts) plus(b amounts, sign int) amounts {
	return amounts{a[0] + sign*b[0], a[1] + sign*b[1], a[2] + sign*b[2]}
}

func (a amounts) resources() schema.Resources {
	return schema.Resources{CPUMilli: int64(a[0]) * 1000, RAMBytes: int64(a[1]) << 30}
}

// cell is a small one: what machines have, what tasks ask for, and where they are.
type cell struct {
	machines, tasks []amounts
	fixed           []bool // tasks that may not be moved
	on              []int  // the machine of each task, or -1
	wants           amounts
}

// free returns what is free on a machine.
func (c *cell) free(on []int, machine int) amounts {
	free := c.machines[machine]
	for t, m := range on {
		if m == machine {
			free = free.plus(c.tasks[t], -1)
		}
	}
	return free
}

func (c *cell) open(on []int) bool {
	for m := range c.machines {
		if c.wants.fits(c.free(on, m)) {
			return true
		}
	}
	return false
}

// oracle returns the fewest moves that open a hole, of most at most, by trying all there
// are; -1 if there are none.
func (c *cell) oracle(most int) int {
	level, seen := [][]int{c.on}, map[string]bool{}
	for n := range most + 1 {
		var next [][]int
		for _, on := range level {
			if c.open(on) {
				return n
			}
			for t := range on {
				for m := range c.machines {
					if on[t] < 0 || m == on[t] || c.fixed[t] || !c.tasks[t].fits(c.free(on, m)) {
						continue
					}
					moved := slices.Clone(on)
					moved[t] = m
					if key := fmt.Sprint(moved); !seen[key] {
						seen[key] = true
						next = append(next, moved)
					}
				}
			}
		}
		level = next
	}
	return -1
}

func random(r *rand.Rand) *cell {
	c := &cell{}
	for range 2 + r.IntN(4) {
		c.machines = append(c.machines, amounts{4 + r.IntN(7), 4 + r.IntN(7), r.IntN(4)})
	}
	for range 2 + r.IntN(9) {
		t := amounts{1 + r.IntN(5), 1 + r.IntN(5), 0}
		if r.IntN(4) == 0 {
			t[2] = 1 + r.IntN(2)
		}
		c.tasks, c.fixed, c.on = append(c.tasks, t), append(c.fixed, r.IntN(6) == 0), append(c.on, -1)
		m := r.IntN(len(c.machines))
		for range c.machines {
			if m = (m + 1) % len(c.machines); t.fits(c.free(c.on, m)) {
				c.on[len(c.on)-1] = m
				break
			}
		}
	}
	c.wants = amounts{3 + r.IntN(6), 3 + r.IntN(6), r.IntN(3)}
	return c
}

func job(i int) schema.JobName {
	return schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("t%02d", i)}
}

func (c *cell) ask(name schema.JobName, a amounts) placement.Ask {
	out := placement.Ask{Name: name.Task(0), Priority: 200, Limit: a.resources(), Spread: placement.NoSpread}
	if a[2] > 0 {
		out.Devices = []placement.DeviceAsk{{Kind: "gpu", Count: a[2], Milli: placement.DeviceMilli}}
	}
	return out
}

func (c *cell) snapshot() *placement.Snapshot {
	var machines []placement.Machine
	for i, m := range c.machines {
		machines = append(machines, placement.Machine{
			Name: fmt.Sprintf("m%d", i), Up: true, Capacity: m.resources(), Devices: []placement.Device{{Kind: "gpu", Count: m[2]}},
		})
	}
	var tasks []placement.Task
	used := map[int]int{} // GPUs, by machine
	for i, m := range c.on {
		if m < 0 {
			continue
		}
		a := c.ask(job(i), c.tasks[i])
		t := placement.Task{Name: a.Name, Machine: machines[m].Name, Priority: 200, Limit: a.Limit, Ask: &a}
		for range c.tasks[i][2] {
			t.Devices = append(t.Devices, placement.DeviceUse{Kind: "gpu", Index: used[m], Milli: placement.DeviceMilli})
			used[m]++
		}
		tasks = append(tasks, t)
	}
	return placement.NewSnapshot(machines, tasks)
}

// search looks for holes where all but the fixed tasks may be moved.
func (c *cell) search(s *placement.Snapshot, moves int) rebalance.Search {
	return rebalance.Search{Snapshot: s, Moves: moves, May: func(t *placement.Task, _ []rebalance.Move) (placement.Ask, bool) {
		return *t.Ask, !c.fixed[c.index(t.Name)]
	}}
}

func (c *cell) index(name schema.TaskName) (i int) {
	_, _ = fmt.Sscanf(name.Job, "t%d", &i)
	return i
}

// check errs unless each move has room when its turn comes, and the hole is there then.
func (c *cell) check(h *rebalance.Hole) error {
	on := slices.Clone(c.on)
	for _, m := range h.Moves {
		t, from, to := c.index(m.Task), 0, 0
		_, _ = fmt.Sscanf(m.From+" "+m.To, "m%d m%d", &from, &to)
		switch {
		case on[t] != from:
			return fmt.Errorf("%s is not on %s", m.Task.Short(), m.From)
		case c.fixed[t]:
			return fmt.Errorf("%s may not be moved", m.Task.Short())
		case !c.tasks[t].fits(c.free(on, to)):
			return fmt.Errorf("%s has no room on %s", m.Task.Short(), m.To)
		}
		on[t] = to
	}
	var at int
	_, _ = fmt.Sscanf(h.Machine, "m%d", &at)
	if free := c.free(on, at); !c.wants.fits(free) {
		return fmt.Errorf("%s then has %v free, which is no room for %v", h.Machine, free, c.wants)
	}
	return nil
}

// TestOracle holds the search against one that tries all there is, on small cells.
func TestOracle(t *testing.T) {
	t.Parallel()
	const most = 3
	found := [most + 2]int{} // cells, by moves that they need; the last: none will do
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 18))
		c := random(r)
		want := c.oracle(most)
		s := c.snapshot()
		before := s.Describe()
		h, ok := c.search(s, most).Hole(c.ask(job(99), c.wants))
		found[(want+most+2)%(most+2)]++
		switch {
		case ok != (want >= 0):
			t.Fatalf("seed %d: %+v: found %t, %+v: want %d moves", seed, c, ok, h, want)
		case ok && len(h.Moves) != want:
			t.Fatalf("seed %d: %+v: %+v: want %d moves", seed, c, h, want)
		case ok:
			if err := c.check(&h); err != nil {
				t.Fatalf("seed %d: %+v: %+v: %v", seed, c, h, err)
			}
		}
		if after := s.Describe(); !slices.Equal(before, after) {
			t.Fatalf("seed %d: the snapshot was %q, and is %q", seed, before, after)
		}
	}
	t.Logf("cells by moves that they need: %v; the last: none will do", found)
	for n, cells := range found {
		if cells < 5 {
			t.Errorf("%d cells need %d moves: this tests too little", cells, n)
		}
	}
}
