package nodeagent

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// How the agent checks health, until a job can say so itself. The numbers are
// Kubernetes' (failureThreshold 3, timeout 1 s), the interval Nomad's lower
// bound, so that a rollout need not wait for long.
const (
	CheckEvery       = time.Second
	CheckTimeout     = time.Second
	FailureThreshold = 3
)

// Check is a health check of one incarnation.
type Check struct {
	Task        schema.TaskName
	Generation  uint64
	Incarnation int
	Port        int
	Path        string
}

// Probe is what the checks of one incarnation have come to so far.
type Probe struct {
	State  schema.HealthState
	Failed int // in a row
}

// Next returns p after one more check. One success is enough to be healthy,
// FailureThreshold failures in a row are needed to be unhealthy: a single lost
// answer must not pull a task out of its service.
func (p Probe) Next(ok bool) Probe {
	if ok {
		return Probe{State: schema.Healthy}
	}
	p.Failed = min(p.Failed+1, FailureThreshold)
	if p.Failed == FailureThreshold {
		p.State = schema.Unhealthy
	} else if p.State == "" {
		p.State = schema.HealthUnknown
	}
	return p
}

// check keeps the health check of a running incarnation going.
func (d *decider) check(it item, c *Incarnation) {
	health := it.job().Task.Health
	if c.PID == 0 || health == nil || health.HTTP == nil {
		return
	}
	port, ok := it.held.Assignment.Ports[health.HTTP.Port]
	if !ok {
		return
	}
	d.plan.Checks = append(d.plan.Checks, Check{
		Task: it.task, Generation: it.generation, Incarnation: c.Number, Port: port, Path: health.HTTP.Path,
	})
}

// health returns what to report of c's health: "" without a check.
func (d *decider) health(it item, c *Incarnation) schema.HealthState {
	switch {
	case it.job().Task.Health == nil:
		return ""
	case c.Health == "":
		return schema.HealthUnknown
	}
	return c.Health
}
