package loop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// prober has health checks go on. It belongs to Run's goroutine.
type prober struct {
	loop *Loop
	on   map[nodeagent.Running]probing
}

// probing is a health check that goes on.
type probing struct {
	cancel context.CancelFunc
	health schema.Health // what is asked, and when
}

func newProber(l *Loop) *prober { return &prober{l, map[nodeagent.Running]probing{}} }

// set makes the checks that go on those that shall.
func (b *prober) set(ctx context.Context, checks []nodeagent.Check, processes map[schema.TaskRef]Process) {
	wanted := make(map[nodeagent.Running]bool, len(checks))
	for i := range checks {
		c := &checks[i]
		r := nodeagent.Running{TaskRef: schema.TaskRef{Task: c.Task, Generation: c.Generation}, Incarnation: c.Incarnation}
		wanted[r] = true
		old, on := b.on[r]
		switch {
		case on && same(&old.health, &c.Health):
			continue
		case on: // newer version: what the older has counted does not
			old.cancel()
			c.Probe = nodeagent.Known(c.Probe.State, c.Probe.Message)
		}
		if process := processes[r.TaskRef]; process != nil {
			b.begin(ctx, r, c, process)
		}
	}
	for r, p := range b.on {
		if !wanted[r] {
			p.cancel()
			delete(b.on, r)
		}
	}
}

func (b *prober) begin(ctx context.Context, r nodeagent.Running, c *nodeagent.Check, process Process) {
	ctx, cancel := context.WithCancel(ctx)
	b.on[r] = probing{cancel, c.Health}
	check := *c
	b.loop.workers.Go(func() {
		probe(ctx, check, process, func(p nodeagent.Probe) {
			b.loop.send(ctx, func() {
				if _, on := b.on[r]; on {
					b.loop.owner.agent.Probed(r, p)
				}
			})
		})
	})
}

// same reports whether two checks ask the same. A job's data is one object until
// it changes, so that they are rarely looked into.
func same(a, b *schema.Health) bool { return *a == *b || schema.DigestOf(a) == schema.DigestOf(b) }

// repeatMessageAfter is the shortest time between two messages of a task's checks that
// change nothing else: what a command says may differ each time.
const repeatMessageAfter = 10 * time.Second

// probe checks one incarnation until ctx ends, and reports changes.
func probe(ctx context.Context, c nodeagent.Check, process Process, report func(nodeagent.Probe)) {
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
			report(p)
		}
		timer.Reset(max(p.Wait(&c.Health)-time.Since(began), 0))
	}
}

// asker asks one task how it is.
type asker struct {
	check   *nodeagent.Check
	one     func(ctx context.Context) (what string, err error)
	release func()
}

func newAsker(c *nodeagent.Check, process Process) *asker {
	a, hosts := &asker{check: c, release: func() {}}, hostsOf(&c.Assignment)
	switch h := &c.Health; {
	case (h.HTTP != nil || h.TCP != nil) && len(hosts) == 0:
		a.one = askNowhere
	case h.HTTP != nil:
		client := httpClient(h.Timeout(), hosts)
		port, _ := c.Assignment.Ports.Get(h.HTTP.Port)
		a.release = client.CloseIdleConnections
		at := net.JoinHostPort(hosts[0], strconv.Itoa(port))
		a.one = func(ctx context.Context) (string, error) { return askHTTP(ctx, client, h.HTTP, at) }
	case h.TCP != nil:
		port, _ := c.Assignment.Ports.Get(h.TCP.Port)
		a.one = func(ctx context.Context) (string, error) { return askTCP(ctx, hosts, port) }
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

// stallWatch notes whether this process once does not get to run for most.
type stallWatch struct {
	every, most time.Duration

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	last  time.Time // when it ran
	found bool
	over  bool
}

// watchStalls begins to watch whether this process gets to run. The function
// that it returns ends that, and reports whether it once did not for most. It takes a
// timer and no goroutine: most checks are over before that is due.
func watchStalls(most time.Duration) (stalled func() bool) {
	w := &stallWatch{every: max(most/8, time.Millisecond), most: most, last: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.every, w.run)
	return w.stalled
}

func (w *stallWatch) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	now := time.Now()
	w.found = w.found || now.Sub(w.last) > w.most
	w.last = now
	w.timer.Reset(w.every)
}

func (w *stallWatch) stalled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	return w.found || time.Since(w.last) > w.most
}
