package sim

import (
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// tiredAfter is how long a task whose argument is "tired" answers its checks.
const tiredAfter = 5 * time.Second

// asking is what the world knows of the health checks of a process.
type asking struct {
	at     time.Time // of the last
	failed int       // in a row
}

// ask does the health checks that are due, as nodeagent/loop does.
func (w *World) ask(m *machine) {
	for _, c := range m.plan.Checks {
		h := m.find(nodeagent.Action{Task: c.Task, Generation: c.Generation})
		i := m.live(h)
		if i == nil || i.Number != c.Incarnation {
			continue
		}
		a := w.asked[i.PID]
		if last := maxTime(a.at, i.StartedAt); w.now.Sub(last) < i.Probe.Wait(&c.Health) {
			continue
		}
		argument := strings.Join(h.Assignment.Job.Task.Process.Command, " ")
		ok := !strings.Contains(argument, "sick") && (!strings.Contains(argument, "tired") || w.now.Sub(i.StartedAt) < tiredAfter)
		if a.at = w.now; ok {
			a.failed = 0
		} else {
			a.failed++
		}
		w.asked[i.PID] = a
		i.Probe = i.Probe.Next(&c.Health, i.StartedAt, nodeagent.Result{At: w.now, OK: ok, Message: "GET /: no answer"})
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
func (w *World) checkUnhealthy(h *nodeagent.Held, c *nodeagent.Incarnation, cause *schema.Cause) {
	if cause.Kind != schema.CauseUnhealthy {
		return
	}
	if health := h.Assignment.Job.Task.Health; health == nil || w.asked[c.PID].failed < health.Timed().Failures {
		w.violate("task %s is stopped as unhealthy after %d failures", h.Assignment.Task, w.asked[c.PID].failed)
	}
}
