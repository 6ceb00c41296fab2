package loop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// healthFile is what is known of an incarnation's health, in its directory: an
// agent that was restarted has not asked yet.
const healthFile = "health.json"

// knownHealth is the content of healthFile.
type knownHealth struct {
	State   schema.HealthState `json:"state"`
	Message string             `json:"message,omitempty"`
}

// asked is an incarnation whose health is checked.
type asked struct {
	key
	incarnation int
}

// asking is a health check that goes on.
type asking struct {
	cancel context.CancelFunc
	health schema.Health // what is asked, and when
}

// check makes the running health checks those of the plan.
func (l *Loop) check(ctx context.Context, checks []nodeagent.Check) {
	wanted := make(map[asked]bool, len(checks))
	for i := range checks {
		c := &checks[i]
		k := asked{key{c.Task, c.Generation}, c.Incarnation}
		wanted[k] = true
		old, on := l.probes[k]
		switch {
		case on && same(&old.health, &c.Health):
			continue
		case on: // newer version: what the older has counted does not
			old.cancel()
			c.Probe = nodeagent.Known(c.Probe.State, c.Probe.Message)
		}
		g := l.held[k.key]
		if g == nil || g.process == nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		l.probes[k] = asking{cancel, c.Health}
		process, asked := g.process, *c
		l.workers.Go(func() { l.probe(ctx, k, asked, process) })
	}
	for k, a := range l.probes {
		if !wanted[k] {
			a.cancel()
			delete(l.probes, k)
		}
	}
}

// same reports whether two checks ask the same. A job's data is one object until
// it changes, so that they are rarely looked into.
func same(a, b *schema.Health) bool { return *a == *b || schema.DigestOf(a) == schema.DigestOf(b) }

// repeatMessageAfter is the shortest time between two messages of a task's checks that
// change nothing else: what a command says may differ each time.
const repeatMessageAfter = 10 * time.Second

// probe checks one incarnation until ctx ends, and reports changes to the loop.
func (l *Loop) probe(ctx context.Context, k asked, c nodeagent.Check, process Process) {
	asker := newAsker(&c, process)
	defer asker.close()
	timer := time.NewTimer(c.Probe.Wait(&c.Health))
	defer timer.Stop()
	reported, p := time.Time{}, c.Probe
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		r := asker.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		old := p
		p = p.Next(&c.Health, c.StartedAt, r)
		if p.State != old.State || p.Message != old.Message && time.Since(reported) >= repeatMessageAfter {
			reported = time.Now()
			l.send(ctx, func() { l.probed(k, p) })
		}
		timer.Reset(max(p.Wait(&c.Health)-time.Since(began), 0))
	}
}

// probed takes the news of a check, unless its incarnation is past.
func (l *Loop) probed(k asked, p nodeagent.Probe) {
	g := l.held[k.key]
	if _, on := l.probes[k]; g == nil || !on {
		return
	}
	i := g.find(k.incarnation)
	if i == nil || i.Exit != nil {
		return
	}
	if i.Probe.State != p.State {
		l.keepHealth(g, k.incarnation, p)
		log := l.cfg.Log.With("task", k.task.Short(), "generation", k.generation, "incarnation", k.incarnation)
		switch p.State {
		case schema.Unhealthy:
			l.metrics.unhealthy.Inc()
			log.Warn("unhealthy", "saw", p.Message, "failures", p.Failed)
		case schema.Healthy:
			log.Info("healthy")
		case schema.HealthUnknown:
			log.Warn("its health is unknown", "saw", p.Message)
		}
	}
	i.Probe = p
}

// keepHealth writes down what is known of an incarnation's health. Without it
// the next agent asks anew, so a disk that refuses does no other harm.
func (l *Loop) keepHealth(g *generation, n int, p nodeagent.Probe) {
	err := l.disk.write(filepath.Join(incarnationDir(g.dir, n), healthFile), knownHealth{p.State, p.Message})
	if err != nil {
		l.cfg.Log.Warn("cannot keep what is known of a task's health", "task", g.Assignment.Task.Short(), "err", err)
	}
}

// readHealth returns what an earlier agent knew of the health of the incarnation
// in dir.
func (d *disk) readHealth(dir string) nodeagent.Probe {
	var k knownHealth
	name := filepath.Join(dir, healthFile)
	ok, damage, err := d.read(name, &k)
	if err != nil || !ok { // it is asked anew
		if damage != nil {
			_ = atomicfile.MoveAside(name) // or it is found again
		}
		return nodeagent.Probe{}
	}
	return nodeagent.Known(k.State, k.Message)
}

// asker asks one task how it is.
type asker struct {
	check   *nodeagent.Check
	one     func(ctx context.Context) (what string, err error)
	release func()
}

func newAsker(c *nodeagent.Check, process Process) *asker {
	a := &asker{check: c, release: func() {}}
	switch h := &c.Health; {
	case h.HTTP != nil:
		client := httpClient(h.Timeout())
		port := c.Assignment.Ports[h.HTTP.Port]
		a.release = client.CloseIdleConnections
		a.one = func(ctx context.Context) (string, error) { return askHTTP(ctx, client, h.HTTP, port) }
	case h.TCP != nil:
		port := c.Assignment.Ports[h.TCP.Port]
		a.one = func(ctx context.Context) (string, error) { return askTCP(ctx, port) }
	case h.Exec != nil:
		command := c.Assignment.Expand(h.Exec.Command)
		a.one = func(ctx context.Context) (string, error) { return askExec(ctx, process, command, h.Timeout()) }
	default: // data of a master that knows more
		a.one = func(context.Context) (string, error) {
			return "health check", fmt.Errorf("%w: this agent does not know its kind", nodeagent.ErrNotRun)
		}
	}
	return a
}

func (a *asker) close() { a.release() }

// ask asks once. An answer that does not come in time counts only if this agent
// did get to run meanwhile: else it is the machine that stood still.
func (a *asker) ask(ctx context.Context) nodeagent.Result {
	r := nodeagent.Result{At: time.Now()}
	timeout := a.check.Health.Timeout()
	stalled := watchStalls(timeout / 2)
	what, err := a.one(ctx)
	stood := stalled()
	switch {
	case err == nil:
		r.OK = true
	case errors.Is(err, nodeagent.ErrNotRun):
		r.Void = true
	case stood && (errors.Is(err, context.DeadlineExceeded) || isTimeout(err)):
		r.Void = true
	}
	if err != nil {
		r.Message = what + ": " + reason(err)
		if r.Void {
			r.Message = "not counted: " + r.Message
		}
		r.Message = printable(r.Message, messageMax)
	}
	return r
}

// isTimeout reports whether err says of itself that it is one.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// watchStalls begins to watch whether this process gets to run. The function
// that it returns ends that, and reports whether it once did not for most.
func watchStalls(most time.Duration) (stalled func() bool) {
	every := max(most/8, time.Millisecond)
	stop, out := make(chan struct{}), make(chan bool, 1)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		last, found := time.Now(), false
		for {
			select {
			case <-stop:
				out <- found || time.Since(last) > most
				return
			case <-tick.C:
				found = found || time.Since(last) > most
				last = time.Now()
			}
		}
	}()
	return func() bool { close(stop); return <-out }
}
