package reconciler_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/schema"
)

// BenchmarkRollout measures how long a master takes to roll out a job, 50 of its tasks at
// once, in a cell of 2,000 machines with ten tasks each: ten machines that have something
// to say report before each step. It is given by task: what goes with the job is seen in
// how that grows with its size.
func BenchmarkRollout(b *testing.B) {
	for _, tasks := range []int{250, 1000, 4000} {
		b.Run(fmt.Sprint(tasks), func(b *testing.B) {
			c := newCell()
			for i := range 2000 {
				c.joinAs(agentOf(fmt.Sprintf("m%05d", i), 64, 256))
			}
			c.reports(b, c.agents)
			version := func(n int) {
				j := service("u", "large", tasks, fmt.Sprint(n))
				j.Task.Resources.Ports, j.Task.Resources.CPUMilli = nil, 100
				j.Update.MaxParallel = 50
				c.commit(compiled(fmt.Sprint("c", n), good(pkg(".", schema.Cell{Name: "c", Quota: "off"})), good(pkg("u", append(smallJobs(200), j)...))))
			}
			job := schema.JobName{Cell: "c", User: "u", Job: "large"}
			version(0)
			for range 6 {
				c.round(b)
				c.reports(b, c.agents)
			}
			n, rounds := 0, 0
			for b.Loop() {
				n++
				version(n)
				c.round(b)
				for c.state.Jobs[job].Good != c.state.Jobs[job].Admitted {
					b.StopTimer()
					news := c.news(10)
					if len(news) == 0 {
						b.Fatal("the rollout waits, and nobody has anything to say")
					}
					b.StartTimer()
					c.reports(b, news)
					c.round(b)
					rounds++
				}
			}
			per := float64(b.N * tasks)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/per, "µs/task")
			b.ReportMetric(float64(rounds)/float64(b.N), "rounds")
		})
	}
}

// news returns at most so many agents that are to do, or have to say, something.
func (c *cell) news(most int) []*agent {
	var out []*agent
	for _, a := range c.agents {
		view := c.views[a.info.Name].Assignments
		news := len(view) != len(a.tasks)
		for i := range view {
			s := a.tasks[view[i].Generation]
			news = news || s == nil || s.Data != view[i].Data || view[i].Stop != nil && s.State != schema.Dead
		}
		if news {
			if out = append(out, a); len(out) == most {
				break
			}
		}
	}
	return out
}
