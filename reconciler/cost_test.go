package reconciler_test

import (
	"fmt"
	"maps"
	"math"
	goruntime "runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// costs is what happens in a cell, with what it may take: what goes with the change takes
// the same in a cell that is four times as large.
var costs = []struct {
	name string
	// most is how many times as much may be taken in four times the cell. What is over same goes
	// with the cell, for the reason given; the list only shrinks.
	most   cost
	reason string
	do     func(t *testing.T, c *cell)
}{
	{"a report that repeats the last one", same, "", func(t *testing.T, c *cell) {
		r := c.observed.Last(c.first()).Report // as the link has it when an agent sends but its digest
		if err := c.master.Report(c.first(), c.state.Machines[c.first()].Epoch, r, c.now); err != nil || c.master.News() {
			t.Fatalf("it is news, or %v", err)
		}
	}},
	{"a machine joins again", same, "", func(t *testing.T, c *cell) {
		if _, err := c.master.Join(c.agents[0].info, c.now); err != nil {
			t.Fatal(err)
		}
		c.carryOut()
		c.reports(t, c.agents[:1])
		c.round(t)
	}},
	{"the view of a machine", same, "", func(t *testing.T, c *cell) {
		if view := model.View(c.state, c.first(), nil).Assignments; len(view) != 10 {
			t.Fatalf("it holds %d tasks", len(view))
		}
	}},
	{"whether a commit has converged that has not", same, "", func(t *testing.T, c *cell) {
		if yes, job := c.looked.Converged(c.described(), tooLarge); yes || job != tooLarge {
			t.Fatalf("converged is %t, for %v", yes, job)
		}
	}},
	{"a step in which nothing is to do", same, "", func(t *testing.T, c *cell) {
		c.round(t)
		if writes := c.master.Last().Writes; len(writes) > 0 {
			t.Fatalf("it writes %v", writes)
		}
	}},
	{"a task has restarted", same, "", func(t *testing.T, c *cell) {
		for _, s := range c.agents[0].tasks {
			s.Incarnation++
			break
		}
		c.reports(t, c.agents[:1])
		c.round(t)
	}},
	{"a task ends, is placed again, and runs", same, "", func(t *testing.T, c *cell) {
		a := c.agents[0]
		for _, s := range a.tasks {
			a.die(s, schema.Cause{Kind: schema.CauseUnknown, Message: "its end is not known"})
			break
		}
		c.reports(t, c.agents[:1])
		c.round(t)
		a.tasks = maps.Clone(a.tasks)
		maps.DeleteFunc(a.tasks, func(_ uint64, s *schema.TaskStatus) bool { return s.State == schema.Dead })
		c.reports(t, c.agents[:1])
		c.round(t)
		if len(a.tasks) != 10 {
			t.Fatalf("it runs %d tasks", len(a.tasks))
		}
	}},
	{"the cell as it is, for a reader", cost{bytes: 6}, "the maps of documents and of machines are cloned, so that the reader has its own; when somebody asks, once a round", func(_ *testing.T, c *cell) {
		_ = c.master.Snapshot(c.now)
	}},
	{"a status", cost{bytes: 6}, "it lists each machine, job and task; it is made when somebody asks, and not in the goroutine of the loop", func(_ *testing.T, c *cell) {
		_ = status.Describe(c.described())
	}},
}

// cost is bytes that are allocated, in how many objects, and processor time in nanoseconds; as a bound, 0 is none.
type cost struct{ bytes, objects, time float64 }

// same is of what goes with the change. The time is there for what walks through the cell and allocates
// nothing, which takes four times as much; it is of cold caches, too.
var same = cost{1.3, 1.3, 3}

// rounds is how often the time is measured before it counts as too much: others on the machine only add to it, and
// there are moments in which they do not.
const rounds = 20

// The machines of the smaller cell, and of the larger one.
const few, many = 1000, 4000

// TestWorkGoesWithChange: what a change costs does not go with the size of the cell.
func TestWorkGoesWithChange(t *testing.T) {
	// Not parallel: what others allocate would be counted.
	small, large := sized(t, few), sized(t, many)
	for _, x := range costs {
		t.Run(x.name, func(t *testing.T) {
			tries := 50
			if x.reason != "" {
				tries = 3
			}
			a, b := nothing, nothing
			var ratio cost
			for range rounds {
				a, b = a.or(measured(tries, func() { x.do(t, small) })), b.or(measured(tries, func() { x.do(t, large) }))
				ratio = cost{b.bytes / a.bytes, b.objects / a.objects, b.time / a.time}
				if x.most.time == 0 || ratio.time <= x.most.time || b.time <= negligible {
					break
				}
			}
			t.Logf("%.0f bytes with %d machines, %.0f with %d: %.2f times; %.0f and %.0f objects: %.2f times; %.1f and %.1f µs: %.2f times",
				a.bytes, few, b.bytes, many, ratio.bytes, a.objects, b.objects, ratio.objects, a.time/1e3, b.time/1e3, ratio.time)
			switch {
			case ratio.bytes > x.most.bytes:
				t.Errorf("it takes %.2f times the bytes in four times the cell, want %.1f at most %s", ratio.bytes, x.most.bytes, x.reason)
			case x.most.objects > 0 && ratio.objects > x.most.objects:
				t.Errorf("it makes %.2f times the objects in four times the cell, want %.1f at most %s", ratio.objects, x.most.objects, x.reason)
			case x.most.time > 0 && ratio.time > x.most.time && b.time > negligible:
				t.Errorf("it takes %.2f times the processor time in four times the cell, want %.1f at most %s", ratio.time, x.most.time, x.reason)
			case x.reason != "" && ratio.bytes < same.bytes && ratio.time < same.time:
				t.Errorf("it goes with the change now: take its reason out of the list (%s)", x.reason)
			}
		})
	}
}

// TestStatusGoesWithNews: a machine that says something of one task has the status of that
// task's job made again, and not those of all jobs that it has tasks of.
func TestStatusGoesWithNews(t *testing.T) {
	t.Parallel()
	c := sized(t, 20)
	var k status.Describer
	was := k.Describe(c.described()).Parts()
	var job schema.JobName
	for _, s := range c.agents[0].tasks {
		s.Incarnation++
		job = s.Task.JobName
		break
	}
	c.reports(t, c.agents[:1])
	c.round(t)
	is := k.Describe(c.described()).Parts()
	if len(is) != len(was) {
		t.Fatalf("%d jobs, there were %d", len(is), len(was))
	}
	for i, p := range is {
		want := p.Job.Name == job.Short() || p.Job.Name == tooLarge.Short() // which waits, so that its status goes with the time
		if again := p != was[i]; again != want {
			t.Errorf("the status of %s was made again: %t", p.Job.Name, again)
		}
	}
}

// negligible is how many nanoseconds of processor time are too few for a ratio to say much.
const negligible = 20_000

// tooLarge is a job that fits on no machine of a sized cell.
var tooLarge = schema.JobName{Cell: "c", User: "u", Job: "large"}

// first is the first machine.
func (c *cell) first() string { return c.agents[0].info.Name }

// sized returns a cell of so many machines, which are full with ten tasks each, without room for
// those of tooLarge.
func sized(t *testing.T, machines int) *cell {
	t.Helper()
	c := newCell()
	for i := range machines {
		c.joinAs(agentOf(fmt.Sprintf("m%04d", i), 64, 256))
	}
	c.reports(t, c.agents)
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
		c.round(t)
		c.reports(t, c.agents)
	}
	c.round(t)
	if yes, job := c.looked.Converged(c.described(), schema.JobName{}); yes || job != tooLarge {
		t.Fatalf("not as it should be: converged is %t, for %v", yes, job)
	}
	return c
}

// nothing is a cost that is not measured yet.
var nothing = cost{math.Inf(1), math.Inf(1), math.Inf(1)}

// or returns the less of two costs, of each kind.
func (c cost) or(o cost) cost {
	return cost{min(c.bytes, o.bytes), min(c.objects, o.objects), min(c.time, o.time)}
}

// measured returns what do takes, the least of some tries: what the runtime itself does
// meanwhile only adds.
func measured(tries int, do func()) cost {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	do() // what is made once
	least := nothing
	for range tries {
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		began := threadTime()
		do()
		took := threadTime() - began
		goruntime.ReadMemStats(&after)
		least = least.or(cost{float64(max(1, after.TotalAlloc-before.TotalAlloc)), float64(max(1, after.Mallocs-before.Mallocs)), float64(took)})
	}
	return least
}

// threadTime returns the processor time that this thread has taken, in nanoseconds.
func threadTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
