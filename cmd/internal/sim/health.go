package sim

import (
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// tiredAfter is how long a task whose argument is "tired" answers its checks.
const tiredAfter = 5 * time.Second

// ask does the health checks that are due, as nodeagent/loop does.
func (w *World) ask(m *machine) {
	for i := range m.agent.plan.Checks {
		c := &m.agent.plan.Checks[i]
		h := m.agent.find(nodeagent.Action{Task: c.Task, Generation: c.Generation})
		inc := &h.Incarnations[len(h.Incarnations)-1]
		r := m.run(h, c.Incarnation)
		if r == nil || !r.alive || inc.Number != c.Incarnation {
			continue
		}
		if next := maxTime(r.asked, r.began).Add(inc.Probe.Wait(&c.Health)); w.now.Before(next) {
			m.wakeBy(next)
			continue
		}
		argument := strings.Join(h.Assignment.Job.Task.Process.Command, " ")
		ok := !strings.Contains(argument, "sick") && (!strings.Contains(argument, "tired") || w.now.Sub(r.began) < tiredAfter)
		if r.asked = w.now; ok {
			r.failed = 0
		} else {
			r.failed++
		}
		was := inc.Probe
		inc.Probe = inc.Probe.Next(&c.Health, inc.StartedAt, nodeagent.Result{At: m.clock.read(w.now), OK: ok, Message: "GET /: no answer"})
		r.probe = inc.Probe
		m.agent.news = m.agent.news || was.State != inc.Probe.State || was.Message != inc.Probe.Message
		m.wakeBy(w.now.Add(inc.Probe.Wait(&c.Health)))
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
func (w *World) checkUnhealthy(h *nodeagent.Held, r *run, cause *schema.Cause) {
	if cause.Kind != schema.CauseUnhealthy {
		return
	}
	if health := h.Assignment.Job.Task.Health; health == nil || r.failed < health.Timed().Failures {
		w.violate("task %s is stopped as unhealthy after %d failures", h.Assignment.Task, r.failed)
	}
}
