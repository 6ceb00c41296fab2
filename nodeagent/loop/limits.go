package loop

import (
	"context"
	"time"

	"github.com/musterhq/muster/nodeagent"
)

// limit sets limits in a goroutine of its own: to push a task out of memory can
// take the kernel seconds.
func (l *Loop) limit(ctx context.Context, g *generation, a nodeagent.Action) {
	c, p := g.last(), g.process
	c.LimitsTried, c.LimitsAt = a.Limits, time.Now()
	if p == nil {
		return
	}
	l.workers.Go(func() {
		err := p.Limit(a.Limits)
		l.send(ctx, func() { l.limited(g, a, p.Incarnation().Limits, err) })
	})
}

// limited takes what has come of limits that were set.
func (l *Loop) limited(g *generation, a nodeagent.Action, now nodeagent.TaskLimits, err error) {
	c := g.find(a.Incarnation)
	if c == nil || c.Exit != nil {
		return
	}
	note := ""
	if err != nil {
		note = err.Error()
	}
	if note != "" && note != c.LimitsNote {
		l.cfg.Log.Warn("limits are not all in force", "task", a.Task.Short(), "generation", a.Generation, "err", err)
	}
	c.Limits, c.LimitsNote = now, note
}
