package loop

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// firstCheck is the time from a task's start to its first check. It doubles up
// to nodeagent.CheckEvery while the task has not answered, so that a quick task
// is known to be healthy quickly; failures count only from then on.
const firstCheck = 50 * time.Millisecond

// check makes the running health checks those of the plan.
func (l *Loop) check(ctx context.Context, checks []nodeagent.Check) {
	wanted := make(map[nodeagent.Check]bool, len(checks))
	for _, c := range checks {
		wanted[c] = true
		if l.probes[c] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		l.probes[c] = cancel
		l.workers.Go(func() { l.probe(ctx, c) })
	}
	for c, cancel := range l.probes {
		if !wanted[c] {
			cancel()
			delete(l.probes, c)
		}
	}
}

// probe checks one incarnation until ctx ends, and tells the loop what is new.
func (l *Loop) probe(ctx context.Context, c nodeagent.Check) {
	client := probeClient()
	defer client.CloseIdleConnections()
	target := fmt.Sprintf("http://127.0.0.1:%d%s", c.Port, c.Path)
	timer := time.NewTimer(firstCheck)
	defer timer.Stop()
	var p nodeagent.Probe
	for interval := firstCheck; ; timer.Reset(interval) {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		ok := answers(ctx, client, target)
		if !ok && interval < nodeagent.CheckEvery {
			interval = min(2*interval, nodeagent.CheckEvery)
			continue
		}
		interval = nodeagent.CheckEvery
		old := p.State
		if p = p.Next(ok); p.State != old {
			l.send(ctx, func() { l.probed(c, p.State) })
		}
	}
}

// probed takes the news of a check, unless its incarnation is past.
func (l *Loop) probed(c nodeagent.Check, state schema.HealthState) {
	g := l.held[key{c.Task, c.Generation}]
	if g == nil || l.probes[c] == nil {
		return
	}
	if i := g.find(c.Incarnation); i != nil {
		if i.Health != state && state == schema.Unhealthy {
			l.cfg.Log.Warn("unhealthy", "task", c.Task.Short(), "generation", c.Generation, "incarnation", c.Incarnation)
		}
		i.Health = state
	}
}

// probeClient asks anew each time, as a new client of the task would, and takes
// a redirect for an answer.
func probeClient() *http.Client {
	return &http.Client{
		Timeout:       nodeagent.CheckTimeout,
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answers reports whether GET is answered with a status from 200 to 399.
func answers(ctx context.Context, client *http.Client, target string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode >= 200 && resp.StatusCode < 400
}
