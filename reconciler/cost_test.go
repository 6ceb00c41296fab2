package reconciler_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// costs is what happens in a cell, with what may be allocated for it: what goes with the
// change costs the same in a cell that is four times as large.
var costs = []struct {
	name string
	// most is how many times the bytes it may take in four times the cell. What is over 1.3
	// goes with the cell, for the reason given; the list only shrinks.
	most   float64
	reason string
	do     func(t *testing.T, c *cell)
}{
	{"a report that repeats the last one", 1.3, "", func(t *testing.T, c *cell) {
		r := c.observed.Last("m0001").Report // as the link has it when an agent sends but its digest
		if err := c.master.Report("m0001", c.state.Machines["m0001"].Epoch, r, c.now); err != nil || c.master.News() {
			t.Fatalf("it is news, or %v", err)
		}
	}},
	{"a machine joins again", 1.3, "", func(t *testing.T, c *cell) {
		if _, err := c.master.Join(c.agent("m0001").info, c.now); err != nil {
			t.Fatal(err)
		}
		ready, _ := c.master.Ready(c.now)
		if err := c.master.Stored(ready.Writes); err != nil {
			t.Fatal(err)
		}
		c.master.Advance(c.now)
	}},
	{"the view of a machine", 1.3, "", func(t *testing.T, c *cell) {
		if view := model.View(c.state, "m0001"); len(view) != 10 {
			t.Fatalf("it holds %d tasks", len(view))
		}
	}},
	{"whether a commit has converged that has not", 1.3, "", func(t *testing.T, c *cell) {
		if yes, job := status.Converged(c.described(), tooLarge); yes || job != tooLarge {
			t.Fatalf("converged is %t, for %v", yes, job)
		}
	}},
	{"a step in which nothing is to do", 1.3, "", func(t *testing.T, c *cell) {
		c.now = c.now.Add(time.Millisecond)
		c.master.Decide()
		if ready, more := c.master.Ready(c.now); !more || len(ready.Writes) > 0 {
			t.Fatalf("it writes %v", ready.Writes)
		}
		c.master.Advance(c.now)
	}},
	{"a status", 6, "it tells of each machine, job and task; it is made when somebody asks", func(_ *testing.T, c *cell) { c.status() }},
}

// TestWorkGoesWithChange: what a change costs does not go with the size of the cell.
func TestWorkGoesWithChange(t *testing.T) {
	// Not parallel: what others allocate would be counted.
	small, large := sized(t, 50), sized(t, 200)
	for _, x := range costs {
		t.Run(x.name, func(t *testing.T) {
			few, many := allocated(func() { x.do(t, small) }), allocated(func() { x.do(t, large) })
			ratio := float64(many) / float64(few)
			t.Logf("%d bytes with 50 machines, %d with 200: %.2f times", few, many, ratio)
			switch {
			case ratio > x.most:
				t.Errorf("it takes %.2f times the bytes (%d, not %d) in four times the cell, want %.1f at most %s", ratio, many, few, x.most, x.reason)
			case x.reason != "" && ratio < 1.3:
				t.Errorf("it goes with the change now: take its reason out of the list (%s)", x.reason)
			}
		})
	}
}

// tooLarge is a job that fits on no machine of a sized cell.
var tooLarge = schema.JobName{Cell: "c", User: "u", Job: "large"}

// sized returns a cell of so many machines, which are full with ten tasks each, without room for
// those of tooLarge.
func sized(t *testing.T, machines int) *cell {
	t.Helper()
	c := newCell()
	for i := range machines {
		c.join(fmt.Sprintf("m%04d", i), 64, 256)
	}
	jobs := make([]any, 0, machines)
	for i := range machines {
		j := service("u", fmt.Sprintf("job-%03d", i), 10, "v")
		j.Task.Resources.Ports, j.Task.Resources.CPUMilli = nil, 6400
		jobs = append(jobs, j)
	}
	j := service("u", "large", 1, "v")
	j.Task.Resources.CPUMilli = 1_000_000
	c.commit(compiled("c1", good(pkg(".", schema.Cell{Name: "c", Quota: "off"})), good(pkg("u", append(jobs, j)...))))
	for range 4 {
		c.turn()
	}
	if s := c.status(); len(s.Waiting) != 1 {
		t.Fatalf("not converged: %v", s.Waiting)
	}
	return c
}

// allocated returns the bytes that do allocates, the least of some tries: what the
// runtime itself allocates meanwhile only adds.
func allocated(do func()) uint64 {
	do() // what is made once
	least := ^uint64(0)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return max(least, 1)
}
