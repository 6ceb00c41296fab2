package hollow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/schema"
)

// errEnded says that this agent runs no more.
var errEnded = errors.New("the agent has ended")

// agent is one life of a machine's agent: what it keeps in memory is lost with it. It
// belongs to the group's goroutine, but for what others are said to use; its methods
// as link.Agent are the link's.
type agent struct {
	machine *machine
	parent  context.Context //nolint:containedctx // of the fleet, for the next agent
	ended   <-chan struct{}
	stop    context.CancelFunc
	client  *link.Client

	core    *nodeagent.Agent
	news    bool // something has happened since its last turn
	refused bool // another agent has the machine's name

	info   atomic.Pointer[schema.MachineInfo] // anyone
	report atomic.Pointer[schema.Report]      // anyone
	tasks  atomic.Pointer[[]consumer]         // anyone: what runs, for usage
}

// startAgent starts an agent on what the machine's disk has, and ends the one before.
func (m *machine) startAgent(parent context.Context, now time.Time) {
	if old := m.agent.Load(); old != nil {
		old.stop()
	}
	ctx, stop := context.WithCancel(parent)
	a := &agent{machine: m, parent: parent, ended: ctx.Done(), stop: stop}
	cfg := &m.group.fleet.cfg
	a.client = link.New(link.Config{
		Cell: cfg.Cell, Dial: cfg.Masters[0], Others: cfg.Masters[1:], Shared: m.group.shared, Jobs: &m.group.fleet.jobs,
		Agent: a, Usage: a.usage, Log: cfg.Log.With("machine", m.name),
	})
	m.prepare(a, now)
	m.group.clients.Go(func() {
		defer stop()
		_ = a.client.Run(ctx) // it errs for machines with an identity only
	})
}

// prepare makes a the machine's agent: it adopts what runs, and makes its first report.
func (m *machine) prepare(a *agent, now time.Time) {
	cfg := nodeagent.AgentConfig{
		Cell: m.group.fleet.cfg.Cell, Machine: m.info, NoLines: true,
		// Nobody reads logs here: what has ended goes as soon as it is not reported.
		Limits: nodeagent.Limits{Keep: nodeagent.Keep{Age: nodeagent.ReportFor, FailedAge: nodeagent.ReportFor}},
	}
	var found nodeagent.Found
	if old := m.agent.Load(); old != nil {
		found, a.refused = old.left(), old.refused
	}
	a.core, a.news = nodeagent.NewAgent(cfg, found, now), true
	a.publish()
	m.agent.Store(a)
	m.turn(now)
}

// left returns what the agent leaves on the machine's disk. All that it has decided is
// there, since no write of it was refused.
func (a *agent) left() nodeagent.Found {
	found := nodeagent.Found{Memory: a.core.Memory(), Refused: a.refused}
	for _, h := range a.core.All() {
		t := nodeagent.FoundTask{Held: *h, Written: true}
		starting := a.machine.find(schema.TaskRef{Task: h.Assignment.Task, Generation: h.Assignment.Generation}) != nil
		t.Incarnations = slices.Clone(h.Incarnations)
		for i := range t.Incarnations {
			c := &t.Incarnations[i]
			c.Busy, c.TermAt, c.KilledAt = c.Busy && starting, time.Time{}, time.Time{}
		}
		found.Tasks = append(found.Tasks, t)
	}
	return found
}

// due reports whether a turn is.
func (a *agent) due(now time.Time) bool { return a.news || !a.core.Wake().After(now) }

// turn has the agent decide, and does what it wants done.
func (a *agent) turn(now time.Time) {
	a.news = false
	a.core.Decide()
	for {
		r, more := a.core.Ready(now)
		if !more {
			return
		}
		for _, w := range r.Writes {
			a.core.Stored(w, nil, now)
		}
		if r.Action != nil {
			a.machine.act(r.Action, now)
			a.core.Done(r.Action, nil, now)
		}
		if r.Sticky != nil {
			a.core.StickyDone(*r.Sticky, true, nil, now)
		}
		if r.Turn != nil {
			a.finish(r.Turn)
		}
	}
}

// finish takes what the agent says at the end of a turn.
func (a *agent) finish(t *nodeagent.Turn) {
	if t.Ports {
		a.core.Scanned(nil) // nothing but tasks has any
	}
	for _, name := range t.Bring { // at once
		a.core.Brought(name, nil, time.Time{}, time.Time{})
		a.news = true
	}
	a.machine.check(t.Checks)
	a.publish()
	if t.News {
		a.client.Hint()
	}
}

// publish has the link see what the agent says now.
func (a *agent) publish() {
	info, tasks := a.core.Info(), a.machine.consumers()
	a.info.Store(&info)
	a.report.Store(a.core.Report())
	a.tasks.Store(&tasks)
}

// call has f run by the group's goroutine if this agent runs still.
func (a *agent) call(f func(now time.Time) error) (err error) {
	a.awaitLink()
	done := a.machine.group.call(a.machine, func(now time.Time) {
		if a.machine.agent.Load() != a {
			err = errEnded
			return
		}
		if err = f(now); err == nil {
			a.news = true
		}
	})
	if !done {
		return errEnded
	}
	return err
}

// awaitLink waits while the machine is cut off from its master.
func (a *agent) awaitLink() {
	if s := a.machine.isolated.Load(); s != nil {
		select {
		case <-s.over:
		case <-a.ended:
		}
	}
}

// Info says what the machine is.
func (a *agent) Info() schema.MachineInfo {
	a.awaitLink()
	return *a.info.Load()
}

// Welcome takes the epoch of a new session.
func (a *agent) Welcome(epoch uint64) error {
	return a.call(func(now time.Time) error {
		err := a.core.Welcome(epoch, now)
		a.refused = a.refused && err != nil
		return err
	})
}

// Refused says that another agent has the machine's name.
func (a *agent) Refused() error {
	return a.call(func(time.Time) error {
		a.refused = true
		a.core.Refuse()
		return nil
	})
}

// Assign replaces the view.
func (a *agent) Assign(view schema.View) error {
	return a.call(func(now time.Time) error { return a.core.Assign(&view, now) })
}

// Report returns all that the agent knows, once its machine is not cut off.
func (a *agent) Report() *schema.Report {
	a.awaitLink()
	return a.report.Load()
}

// Logs says that there are none.
func (a *agent) Logs(_ context.Context, r schema.LogRequest, _ io.Writer) error {
	return fmt.Errorf("%s runs on a hollow machine, which has no logs: %w", r.Task.Short(), fs.ErrNotExist)
}

// Exec says that nothing can be run.
func (a *agent) Exec(_ context.Context, r schema.ExecRequest, conn io.ReadWriter) {
	why := fmt.Sprintf("%s runs on a hollow machine, which runs no commands", r.Task.Short())
	_, _ = conn.Write(schema.AppendExecFrame(nil, schema.ExecFailure, []byte(why))) // nobody is there if it fails
}
