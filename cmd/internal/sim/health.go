package sim

import (
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// degradesAfter is how long a task whose argument is "degrade" answers its checks.
const degradesAfter = 5 * time.Second

// ask does the health checks that are due, as nodeagent/loop does.
func (w *World) ask(m *machine) {
	core, now := m.agent.core, m.clock.read(w.now)
	for i := range m.agent.checks {
		c := &m.agent.checks[i]
		x := nodeagent.Running{TaskRef: schema.TaskRef{Task: c.Task, Generation: c.Generation}, Incarnation: c.Incarnation}
		r := m.run(x.TaskRef, x.Incarnation)
		if r == nil || !r.alive {
			continue
		}
		was := r.checked
		if r.asker != core { // this agent has not asked yet
			r.asker, was = core, c.Probe
		}
		if next := maxTime(r.asked, r.began).Add(was.Wait(&c.Health)); w.now.Before(next) {
			m.wakeBy(next)
			continue
		}
		argument := strings.Join(c.Assignment.Job.Task.Process.Command, " ")
		ok := !strings.Contains(argument, "sick") && (!strings.Contains(argument, "degrade") || w.now.Sub(r.began) < degradesAfter)
		if r.asked = w.now; ok {
			r.failed = 0
		} else {
			r.failed++
		}
		is := was.Next(&c.Health, c.StartedAt, nodeagent.Result{At: now, OK: ok, Message: "GET /: no answer"})
		if r.checked = is; was.State != is.State || was.Message != is.Message {
			core.Probed(x, is)
			m.agent.news = true
		}
		m.wakeBy(w.now.Add(is.Wait(&c.Health)))
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// checkUnhealthy: nothing is stopped for its health that was not found wanting
// as often as its job says.
func (w *World) checkUnhealthy(r *run, cause *schema.Cause) {
	if cause.Kind != schema.CauseUnhealthy {
		return
	}
	if health := r.of.assignment.Job.Task.Health; health == nil || r.failed < health.Timed().Failures {
		w.violate("task %s is stopped as unhealthy after %d failures", r.of.assignment.Task, r.failed)
	}
}
