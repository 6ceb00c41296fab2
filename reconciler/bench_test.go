package reconciler_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// large is a cell of 1,000 machines in 40 racks and 50,000 tasks of 500 jobs,
// which all run.
func large(b *testing.B) *cell {
	b.Helper()
	c := newCell()
	for i := range 1000 {
		name := fmt.Sprintf("m%04d", i)
		c.join(name, 64, 256)
		a := c.agent(name)
		a.info.Attributes, a.info.Ports = map[string]string{"rack": fmt.Sprintf("r%02d", i%40)}, schema.PortRange{First: 20000, Last: 21999}
		c.join(name, 64, 256)
	}
	c.commit(compiled("c1", good(pkg(".", schema.Cell{Name: "c", Quota: "off"})), good(pkg("u", largeJobs(500)...))))
	for range 3 {
		c.turn()
	}
	if s := c.status(); !s.Converged {
		b.Fatalf("not converged: %v", s.Waiting)
	}
	c.turn() // receives unchanged reports for a second time
	return c
}

func largeJobs(n int) []any {
	jobs := make([]any, 0, n)
	for i := range n {
		j := service("u", fmt.Sprintf("job-%03d", i), 100, "v")
		j.Task.Resources.CPUMilli, j.Task.Resources.RAMBytes = int64(500+10*(i%50)), 1<<30
		j.Task.Resources.Ports = nil
		j.Priority = schema.Priority(100 * (i % 3))
		jobs = append(jobs, j)
	}
	return jobs
}

// memo says whether the benchmark's steps go on from what the last one found
// out.
var memo = flag.Bool("memo", true, "steps have a memo")

func (c *cell) kept() control.Input {
	in := c.input()
	if *memo {
		in.Memo = c.in.Memo
	}
	return in
}

func (c *cell) turn() {
	c.now = c.now.Add(time.Second)
	c.exchange()
	c.step()
}

// BenchmarkLargeCell measures one step of a cell of 1,000 machines and 50,000 tasks:
// with nothing to do, when a machine repeats what it has said, which makes none, when a
// job of ten tasks is new, also after a machine has joined, and when one is lost.
func BenchmarkLargeCell(b *testing.B) {
	c := large(b)
	b.Run("rest", func(b *testing.B) {
		for b.Loop() {
			if out := control.Step(c.kept()); len(out.Writes) > 0 {
				b.Fatal("there is something to do")
			}
		}
	})
	// What a reader costs: of a cell that nobody has described, of one in which nothing
	// has changed since, and when a machine has said something.
	b.Run("describe", func(b *testing.B) {
		for b.Loop() {
			_ = new(status.Describer).Describe(c.described())
		}
	})
	b.Run("describe-again", func(b *testing.B) {
		for b.Loop() {
			_ = c.describer.Describe(c.described())
		}
	})
	b.Run("describe-report", func(b *testing.B) {
		for b.Loop() {
			c.observed.AddReport(c.agents[0].report(), c.now)
			_ = c.describer.Describe(c.described())
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			_ = c.master.Snapshot(c.now)
		}
	})
	b.Run("repeat", func(b *testing.B) {
		said := c.agents[0].report()
		c.observed.AddReport(said, c.now)
		for b.Loop() {
			if !c.observed.Repeats(&said, c.now) {
				b.Fatal("it is news")
			}
		}
	})
	n := 0
	job := func(b *testing.B, before func(n int)) {
		for b.Loop() {
			b.StopTimer()
			n++
			before(n)
			extra := service("v", "new", 10, fmt.Sprint(n))
			c.commit(compiled(fmt.Sprint("c", n+1), good(pkg(".", schema.Cell{Name: "c", Quota: "off"})), good(pkg("u", largeJobs(500)...)), good(pkg("v", extra))))
			in := c.kept()
			b.StartTimer()
			if out := control.Step(in); len(out.Writes) == 0 {
				b.Fatal("nothing was placed")
			}
		}
	}
	b.Run("job", func(b *testing.B) { job(b, func(int) {}) })
	b.Run("job-after-join", func(b *testing.B) {
		job(b, func(n int) { c.join(fmt.Sprint("new-", n), 4, 8) })
	})
	b.Run("machine", func(b *testing.B) {
		in := c.kept()
		in.Now = in.Now.Add(61 * time.Second)
		for i, a := range c.agents {
			if i > 0 {
				c.observed.AddReport(a.report(), in.Now)
			}
		}
		for b.Loop() {
			if out := control.Step(in); len(out.Writes) == 0 {
				b.Fatal("nobody moved")
			}
		}
	})
}
