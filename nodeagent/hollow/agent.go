package hollow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/schema"
)

// leastWait is the least time between two decisions by which nothing has changed.
const leastWait = time.Millisecond

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

	life nodeagent.Life
	news bool      // something has happened since the last decision
	wake time.Time // when the next is due; zero: never

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
		Cell: cfg.Cell, Dial: cfg.Masters[0], Others: cfg.Masters[1:], Shared: m.group.shared,
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
	a.life, a.news = nodeagent.Life{Began: now}, true
	for _, h := range m.held {
		for i := range h.Incarnations {
			h.Incarnations[i].TermAt, h.Incarnations[i].KilledAt = time.Time{}, time.Time{}
		}
	}
	info := m.info
	info.Seen.Epoch = m.memory.epoch
	a.info.Store(&info)
	m.agent.Store(a)
	m.turn(now)
}

// turn decides and acts until there is nothing to do, publishes what has come of it,
// and returns when the next decision is due.
func (a *agent) turn(now time.Time) time.Time {
	if !a.due(now) {
		return a.wake
	}
	m := a.machine
	var plan nodeagent.Plan
	for a.due(now) {
		plan = nodeagent.Decide(m.input(a.life, now))
		a.news, a.wake = len(plan.Actions) > 0, plan.Wake
		for _, act := range plan.Actions {
			m.act(act, now)
		}
		if !a.wake.IsZero() && a.wake.Before(now.Add(leastWait)) {
			a.wake = now.Add(leastWait)
		}
	}
	m.check(plan.Checks)
	a.publish(&plan)
	return a.wake
}

func (a *agent) due(now time.Time) bool {
	return a.news || !a.wake.IsZero() && !a.wake.After(now)
}

// input is what a decision depends on.
func (m *machine) input(life nodeagent.Life, now time.Time) nodeagent.Input {
	held := make([]nodeagent.Held, len(m.held))
	for i, h := range m.held {
		held[i] = *h
	}
	return nodeagent.Input{
		Machine: m.name, Boot: m.info.Boot, Now: now, Life: life, View: m.memory.view, Held: held, Capacity: m.info.Capacity,
		// Nobody reads logs here: what has ended goes as soon as it is not reported.
		Limits: nodeagent.Limits{Keep: nodeagent.Keep{Age: nodeagent.ReportFor, FailedAge: nodeagent.ReportFor}},
	}
}

// publish makes what a plan says the report, and hints if it is news.
func (a *agent) publish(plan *nodeagent.Plan) {
	r := &schema.Report{Machine: *a.info.Load(), Tasks: plan.Tasks, Overload: plan.Overload}
	if v := a.machine.memory.view; v != nil {
		r.View = v.Version
	}
	tasks := a.machine.consumers()
	a.tasks.Store(&tasks)
	if old := a.report.Swap(r); old != nil && !reflect.DeepEqual(old, r) {
		a.client.Hint()
	}
}

// call has f run by the group's goroutine if this agent runs still.
func (a *agent) call(f func(now time.Time) error) (err error) {
	a.heard()
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

// heard waits while no message of the machine passes.
func (a *agent) heard() {
	if s := a.machine.isolated.Load(); s != nil {
		select {
		case <-s.over:
		case <-a.ended:
		}
	}
}

// Info says what the machine is.
func (a *agent) Info() schema.MachineInfo {
	a.heard()
	return *a.info.Load()
}

// Welcome takes the epoch of a new session.
func (a *agent) Welcome(epoch uint64) error {
	return a.call(func(now time.Time) error {
		m := a.machine
		if epoch < m.memory.epoch {
			return fmt.Errorf("epoch %d is lower than %d, which this machine has seen", epoch, m.memory.epoch)
		}
		m.memory.epoch = epoch
		if a.life.Refused {
			a.life.Refused, a.life.Began = false, now
		}
		info := *a.info.Load()
		info.Seen.Epoch = epoch
		a.info.Store(&info)
		return nil
	})
}

// Refused says that another agent has the machine's name.
func (a *agent) Refused() error {
	return a.call(func(time.Time) error {
		a.life.Refused, a.life.Confirmed = true, time.Time{}
		return nil
	})
}

// Assign replaces the view.
func (a *agent) Assign(epoch, version uint64, view []schema.Assignment) error {
	return a.call(func(now time.Time) error { return a.take(epoch, version, view, now) })
}

func (a *agent) take(epoch, version uint64, view []schema.Assignment, now time.Time) error {
	next := &nodeagent.View{Epoch: epoch, Version: version, Assignments: view}
	if !next.Newer(a.machine.memory.view) {
		return fmt.Errorf("view %d of epoch %d is older than the machine's", version, epoch)
	}
	a.machine.memory.view, a.news = next, true
	if a.life.Confirmed.IsZero() {
		a.life.Confirmed = now
	}
	return nil
}

// Report says all that the agent knows, once its machine is heard.
func (a *agent) Report() schema.Report {
	a.heard()
	return *a.report.Load()
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
