package reconciler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// twins are two cells to which the same happens, but that the master of one is
// replaced now and then.
type twins [2]*cell

// each does the same in both.
func (p twins) each(f func(c *cell)) {
	f(p[0])
	f(p[1])
}

// turn lets time pass, and replaces the second's master if crash says so: before
// its machines report, so that the new one receives what the old one would have.
func (p twins) turn(d time.Duration, crash bool) {
	if c := p[1]; crash {
		c.restart()
		if c.head.Commit != c.state.Head.Commit { // it was kept while the cell was suspended
			c.commit(c.head)
		}
	}
	p.each(func(c *cell) {
		c.now = c.now.Add(d)
		c.exchange()
		c.forgets = true
		c.step()
	})
}

// befall lets a task end, or its process, if it runs.
func (p twins) befall(name string, cause schema.CauseKind) {
	p.each(func(c *cell) {
		a, s := c.find(name)
		if s == nil {
			return
		}
		a.die(s, schema.Cause{Kind: cause, Message: "it befell", Exit: &schema.Exit{Incarnation: 1, Code: 3, At: c.now}, At: c.now})
	})
}

func drawTwins(t *rapid.T) []any {
	jobs := []any{}
	for i := range 2 {
		j := service("u", fmt.Sprintf("j%d", i), rapid.IntRange(0, 4).Draw(t, "tasks"), rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "version"))
		j.Update.MinHealthySeconds, j.Priority = 0, schema.Priority(rapid.SampledFrom([]int{0, 50}).Draw(t, "priority"))
		if i == 1 {
			j.Kind = schema.Batch
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// What is stored is all that a master needs to go on from: back-off, machines that
// are avoided, what is done, rollouts in their middle, suspensions. So a cell whose
// master is replaced at any time stores what it would have stored without.
func TestFailoverChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := twins{newCell(), newCell()}
		p.each(func(c *cell) {
			for i := range 3 {
				c.join(fmt.Sprintf("m%d", i), 4, 8)
			}
		})
		commits := 0
		commit := func(t *rapid.T) {
			commits++
			jobs := drawTwins(t)
			p.each(func(c *cell) { c.commit(compiled(fmt.Sprint(commits), good(pkg(".", jobs...)))) })
		}
		commit(t)
		// Not port-in-use: which ports were refused recently is observed.
		ends := []schema.CauseKind{
			schema.CauseFailed, schema.CauseFailed, schema.CauseStartFailed, schema.CauseOutOfResources, schema.CauseFinished,
		}
		for range rapid.IntRange(1, 30).Draw(t, "turns") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				commit(t)
			case 1:
				name := rapid.SampledFrom([]string{"u/j0", "u/j1", "all"}).Draw(t, "suspend")
				p.each(func(c *cell) {
					_ = c.master.Suspend(schema.Suspension{Name: name, Reason: "x", By: "x"}, 20*time.Second, c.now) // of a job that is not there
					c.carryOut()
				})
			default:
				name := fmt.Sprintf("u/j%d/%d", rapid.IntRange(0, 1).Draw(t, "job"), rapid.IntRange(0, 3).Draw(t, "index"))
				p.befall(name, rapid.SampledFrom(ends).Draw(t, "end"))
			}
			// Less in all than the time after which failures are forgotten: that
			// is counted from the first report that the task runs.
			p.turn(time.Duration(rapid.SampledFrom([]int{1, 1, 5, 9}).Draw(t, "seconds"))*time.Second, rapid.Bool().Draw(t, "crash"))
			if d := cmp.Diff(documents(p[0]), documents(p[1])); d != "" {
				t.Fatalf("the store of a cell whose master was replaced (-without +with):\n%s", d)
			}
			for _, r := range records(p[0].state) {
				if d := cmp.Diff(why(p[0], r), why(p[1], r)); d != "" {
					t.Fatalf("why %s (-without +with):\n%s", r, d)
				}
			}
		}
	})
}

func documents(c *cell) map[string]string {
	out := map[string]string{}
	for key, value := range c.docs {
		out[key] = string(value)
	}
	return out
}

// records returns the names of the tasks that have a record.
func records(s *model.State) []string {
	var out []string
	for name, c := range s.Chunks {
		for i := range c.Tasks {
			out = append(out, name.Job.Task(c.Tasks[i].Index).Short())
		}
	}
	slices.Sort(out)
	return out
}

// why returns what users see of a task, but for its score.
func why(c *cell, task string) []string {
	e, _ := status.Explain(c.described(), c.snapshot(), task, "")
	e.Placement = nil
	return e.Lines()
}
