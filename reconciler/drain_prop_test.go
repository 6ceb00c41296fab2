package reconciler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// TestDrainPreempts drains machines of full cells, of which some take their time to stop tasks, and
// masters die. Others make room for a task once, in the step that stops it, and within their
// budgets; and when all machines stop what they are to stop, it comes to an end.
func TestDrainPreempts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCell()
		machines := rapid.IntRange(3, 4).Draw(t, "machines")
		for i := range machines {
			c.joinRack(fmt.Sprintf("m%d", i), fmt.Sprintf("r%d", i%2), 4, 8)
		}
		objects := fullCell(t)
		c.commit(compiled("c1", good(pkg(".", objects...))))
		var last time.Time // that somebody was preempted
		pass := func(turns int) {
			for range turns {
				c.now = c.now.Add(time.Second)
				c.exchange()
				if c.preempts(t) {
					last = c.now
				}
			}
		}
		pass(4)
		for i := range rapid.IntRange(1, 2).Draw(t, "drains") {
			name := fmt.Sprintf("m%d", rapid.IntRange(0, machines-1).Draw(t, "machine"))
			objects = append(objects, schema.Machine{Name: fmt.Sprintf("d%d", i), Cell: "c", Match: "machine=" + name, Drain: &schema.Drain{AtOnce: 1, AtDeadline: schema.DeadlineBudget}})
		}
		c.commit(compiled("c2", good(pkg(".", objects...))))
		for range rapid.IntRange(0, 6).Draw(t, "actions") {
			a := c.agent(fmt.Sprintf("m%d", rapid.IntRange(0, machines-1).Draw(t, "agent")))
			switch rapid.SampledFrom([]string{"hang", "obey", "silent", "crash"}).Draw(t, "action") {
			case "hang":
				a.hangs = true
			case "obey":
				a.hangs = false
			case "silent":
				a.silent = true
				pass(rapid.IntRange(1, 12).Draw(t, "silence"))
				a.silent = false
			case "crash":
				c.restart()
			}
			pass(rapid.IntRange(0, 4).Draw(t, "turns"))
		}
		for i := range machines {
			c.agent(fmt.Sprintf("m%d", i)).hangs = false
		}
		pass(40)
		if quiet := c.now.Sub(last); quiet < 15*time.Second {
			t.Fatalf("a task was preempted %s ago", quiet)
		}
	})
}

// fullCell returns jobs of several priorities that ask for more than the cell has.
func fullCell(t *rapid.T) []any {
	job := func(name string, tasks, cpu int, fields ...string) schema.Job {
		j := service("u", name, tasks, "v")
		j.Task.Resources.CPUMilli, j.Labels = int64(cpu), map[string]string{"app": name}
		if err := set(&j, fields); err != nil {
			t.Fatal(err)
		}
		return j
	}
	bounds := rapid.SampledFrom([]string{
		`labels={"app":"web"}`, `spread={"max":{"rack":1}}`, `spread={"max":{"rack":2}}`, `spread={"max":{"machine":1}}`, `spread={"maxSkew":{"rack":1}}`,
		`antiAffinity=[{"selector":"app=web","by":"rack"}]`,
	}).Draw(t, "bounds")
	return []any{
		schema.Cell{Name: "c", Quota: "off"},
		job("mon", rapid.IntRange(0, 2).Draw(t, "mon"), 1000, "priority=300"),
		job("web", rapid.IntRange(1, 3).Draw(t, "web"), 1000*rapid.IntRange(1, 4).Draw(t, "cores"), "priority=200", bounds, fmt.Sprintf("parallel=%d", rapid.IntRange(1, 3).Draw(t, "parallel"))),
		job("mid", rapid.IntRange(0, 3).Draw(t, "mid"), 1500, "priority=150", `disruption={"maxDown":1}`, "health=0"),
		job("low", 14, 1000, "priority=100", fmt.Sprintf(`disruption={"maxDown":%d}`, rapid.IntRange(1, 14).Draw(t, "down")), "health=0"),
	}
}

// preempts steps, holds who makes room in it for a task that has a place against the rules, and
// reports whether anybody does.
func (c *cell) preempts(t *rapid.T) (anybody bool) {
	before := c.records()
	events := c.step().Events
	now := c.records()
	for _, e := range events {
		if e.Cause != schema.CausePreempted || strings.HasPrefix(e.Message, "stopped") {
			continue
		}
		anybody = true
		by := now[e.Task].Stop.By
		is := now[by]
		if is.Machine == "" {
			continue // it is pending
		}
		if was := before[by]; was.Stop != nil || is.Stop == nil || is.Stop.To != e.Machine {
			t.Fatalf("%s %s, which was %+v and is %+v", e.Task, e.Message, was.Stop, is.Stop)
		}
		job := c.state.Jobs[schema.JobName{Cell: "c", User: "u", Job: "low"}]
		down := 0
		for name, r := range now {
			if strings.HasPrefix(name, "u/low/") && before[name].Generation > 0 && (r.Machine == "" || r.Stop != nil) {
				down++
			}
		}
		if most := c.state.Data[job.Admitted].MayBeDown(); strings.HasPrefix(e.Task, "u/low/") && down > most {
			t.Fatalf("%s %s: %d tasks of its job are down, and at most %d may be", e.Task, e.Message, down, most)
		}
	}
	return anybody
}

// records returns those of all tasks, by their short names.
func (c *cell) records() map[string]schema.TaskRecord {
	out := map[string]schema.TaskRecord{}
	for _, name := range c.state.ChunkNames() {
		for _, r := range c.state.Chunks[name].Tasks {
			out[name.Job.Task(r.Index).Short()] = r
		}
	}
	return out
}
