package reconciler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// round has the master decide, and stores that, without an audit.
func (c *cell) round(b testing.TB) {
	b.Helper()
	c.now = c.now.Add(time.Millisecond) // so that no machine falls silent in a few thousand rounds
	c.master.Decide()
	for {
		ready, more := c.master.Ready(c.now)
		if !more {
			return
		}
		for _, batch := range model.Batches(ready.Writes) {
			if err := c.master.Stored(batch); err != nil {
				b.Fatal(err)
			}
		}
		for _, v := range ready.Views {
			c.views[v.Machine] = v.View
		}
		c.master.Advance(c.now)
	}
}

// reports has machines take their views and report.
func (c *cell) reports(b testing.TB, agents []*agent) {
	b.Helper()
	for _, a := range agents {
		c.obey(a, c.views[a.info.Name].Assignments)
		if err := c.master.Report(a.info.Name, c.state.Machines[a.info.Name].Epoch, a.report(), c.now); err != nil {
			b.Fatal(err)
		}
	}
}

// joinAs adds a machine that is the last by its name.
func (c *cell) joinAs(a *agent) {
	c.agents = append(c.agents, a)
	if _, err := c.master.Join(a.info, c.now); err != nil {
		panic(err)
	}
	c.carryOut()
}

// BenchmarkTakeCommit measures how long a master takes for a commit of ten tasks for each machine,
// from the commit until all run: a hundredth of the machines reports before each step.
func BenchmarkTakeCommit(b *testing.B) {
	for _, machines := range []int{1000, 4000, 10000} {
		b.Run(fmt.Sprint(machines), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				c := newCell()
				for i := range machines {
					c.joinAs(agentOf(fmt.Sprintf("m%05d", i), 64, 256))
				}
				c.reports(b, c.agents)
				c.round(b)
				b.StartTimer()
				c.commit(compiled("c1", good(pkg(".", schema.Cell{Name: "c", Quota: "off"})), good(pkg("u", smallJobs(machines/10)...))))
				c.round(b)
				for first := 0; first < machines; first += machines / 100 {
					c.reports(b, c.agents[first:first+machines/100])
					c.round(b)
				}
				b.StopTimer()
				if s := c.status(); !s.Converged {
					b.Fatalf("not converged: %v", s.Waiting)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(machines*10), "us/task")
		})
	}
}

func smallJobs(n int) []any {
	jobs := make([]any, 0, n)
	for i := range n {
		j := service("u", fmt.Sprintf("job-%04d", i), 100, "v")
		j.Task.Resources.Ports = nil
		jobs = append(jobs, j)
	}
	return jobs
}
