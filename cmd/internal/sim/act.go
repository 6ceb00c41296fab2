package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// store writes documents of an agent down, until it says to leave the others. It
// returns false when the agent died of it.
func (w *World) store(m *machine, writes []nodeagent.Write) bool {
	a := m.agent
	for _, x := range writes {
		err := w.storeOne(m, x.Document)
		if m.agent != a {
			return false
		}
		if !a.core.Stored(x, err, m.clock.read(w.now)) {
			return true
		}
	}
	return true
}

// storeOne writes a document of an agent down.
func (w *World) storeOne(m *machine, x nodeagent.Document) error {
	d, r := &m.disk, m.run(x.TaskRef, x.Incarnation)
	switch c := m.agent.core.Content(x).(type) {
	case nodeagent.Memory:
		wasEpoch, wasView := d.epoch, d.view
		d.refusedView = c.View
		w.checkHeld(m, c.View)
		return w.write(m, "view.json", func() { d.epoch, d.view, d.refusedView = c.Epoch, c.View, nil }, func() { d.epoch, d.view = wasEpoch, wasView })
	case *schema.Assignment:
		_, err := w.keep(m, c)
		return err
	case *schema.Cause:
		cause := serializedCause(c)
		if x.Kind == nodeagent.StopDocument {
			return w.write(m, file(x.TaskRef, "stop.json"), func() { r.stop = cause }, func() { r.stop = nil })
		}
		g := d.find(x.Task, x.Generation)
		err := w.write(m, file(x.TaskRef, "end.json"), func() { g.end = cause }, func() { g.end = nil })
		w.moved = w.moved || err == nil
		return err
	case nodeagent.Given:
		was := r.renewed
		return w.write(m, file(x.TaskRef, "given.json"), func() { r.renewed = c }, func() { r.renewed = was })
	case nodeagent.Probe:
		r.probe = c
	}
	return nil
}

// keep writes the assignment of a generation down, if that is not done.
func (w *World) keep(m *machine, a *schema.Assignment) (*generation, error) {
	name := file(schema.TaskRef{Task: a.Task, Generation: a.Generation}, "assignment.json")
	g := m.disk.find(a.Task, a.Generation)
	if g != nil && m.disk.unsynced[name] == nil {
		return g, nil
	}
	if g == nil {
		g = &generation{assignment: *a}
	}
	return g, w.write(m, name, func() {
		m.disk.remove(g)
		m.disk.generations = append(m.disk.generations, g)
	}, func() { m.disk.remove(g) })
}

func file(of schema.TaskRef, name string) string {
	return fmt.Sprintf("%s/%d/%s", of.Task.Short(), of.Generation, name)
}

// act does one action of an agent, as nodeagent/loop does.
func (w *World) act(m *machine, x *nodeagent.Act) {
	a := m.agent
	err := w.do(m, x)
	if m.agent != a {
		return
	}
	now := m.clock.read(w.now)
	a.core.Done(x, err, now)
	if x.Kind == nodeagent.Start {
		if out, died := w.start(m, x); !died {
			a.core.Started(runningOf(x), &out, now)
			a.news = true
		}
	}
}

func runningOf(x *nodeagent.Act) nodeagent.Running {
	return nodeagent.Running{TaskRef: schema.TaskRef{Task: x.Task, Generation: x.Generation}, Incarnation: x.Incarnation}
}

func (w *World) do(m *machine, x *nodeagent.Act) error {
	of := runningOf(x)
	r := m.run(of.TaskRef, x.Incarnation)
	switch x.Kind {
	case nodeagent.Term:
		w.checkTerm(m, x.Action)
		w.checkUnhealthy(r, x.Cause)
		w.term(m, r)
	case nodeagent.Kill:
		if r.alive && (r.termed.IsZero() || w.stopOf(m, of) == nil) {
			w.violate("task %s generation %d is killed on %s before SIGTERM, with a cause", x.Task, x.Generation, m.name)
		}
		w.checkGrace(m, r)
		w.exit(m, r, schema.Exit{Code: -1, Signal: "SIGKILL"})
	case nodeagent.StopCommand:
		m.agent.core.StopCommandRan(of, "")
	case nodeagent.Limit:
		r.limits = x.Limits
		m.agent.core.Limited(of, x.Limits, nil)
	case nodeagent.End:
		if x.Clear {
			m.agent.core.Cleared(of.TaskRef)
		}
	case nodeagent.Prune:
		g := m.disk.find(x.Task, x.Generation)
		if r == nil {
			return nil
		}
		return w.write(m, file(of.TaskRef, fmt.Sprint(x.Incarnation)),
			func() { g.runs = slices.DeleteFunc(g.runs, func(x *run) bool { return x == r }) },
			func() { g.runs = append([]*run{r}, g.runs...) })
	case nodeagent.Remove:
		g := m.disk.find(x.Task, x.Generation)
		return w.write(m, file(of.TaskRef, ""), func() { m.disk.remove(g) }, func() { m.disk.generations = append(m.disk.generations, g) })
	case nodeagent.Renew:
		w.give(m, x, r)
	case nodeagent.Start, nodeagent.Reap:
	}
	return nil
}

// stopOf returns why an agent has asked an incarnation to stop, nil if it has not.
func (w *World) stopOf(m *machine, of nodeagent.Running) *schema.Cause {
	for _, c := range m.agent.core.Held(of.TaskRef).Incarnations {
		if c.Number == of.Incarnation {
			return c.Stop
		}
	}
	return nil
}

// start starts an incarnation, or says why it cannot be. It reports whether the agent
// has died of that.
func (w *World) start(m *machine, x *nodeagent.Act) (out nodeagent.StartOutcome, died bool) {
	out.Written = x.Written
	refuse := func(kind schema.CauseKind, message string) (nodeagent.StartOutcome, bool) {
		out.Refused = &schema.Cause{Kind: kind, Message: message}
		w.note("%s refuses %s generation %d: %s", m.name, x.Task.Short(), x.Generation, message)
		return out, false
	}
	full := func(what string, err error) (nodeagent.StartOutcome, bool) {
		out.Err = err
		out, _ = refuse(schema.CauseOutOfResources, "disk: "+what+": "+err.Error())
		out.Refused.Resource = schema.MachineDisk
		return out, false
	}
	if x.Unkept != nil {
		return full("keep the view", x.Unkept)
	}
	w.checkStart(x.Action)
	g, err := w.keep(m, x.Assignment)
	switch {
	case errors.Is(err, errDied):
		return out, true
	case err != nil:
		return full("keep the assignment", err)
	}
	out.Written = true
	w.checkKnown(m, x.Action)
	if x.InUse != nil {
		return refuse(schema.CausePortInUse, x.InUse.Error())
	}
	for _, p := range x.Assignment.Ports {
		if m.foreign[p.Port] || m.listens(p.Port) {
			return refuse(schema.CausePortInUse, "a port is in use")
		}
	}
	out.Tried = true
	of := schema.TaskRef{Task: x.Task, Generation: x.Generation}
	r := &run{of: g, number: x.Incarnation, boot: m.bootID(), limits: nodeagent.LimitsOf(x.Assignment.Job), given: nodeagent.GivenOf(&x.Assignment.Job.Task), step: x.Step, attempt: x.Attempt}
	w.give(m, x, r)
	err = w.write(m, file(of, "state.json"), func() { g.runs = append(g.runs, r); w.begin(m, r) }, func() {
		g.runs = slices.DeleteFunc(g.runs, func(x *run) bool { return x == r })
	})
	if errors.Is(err, errDied) {
		return out, true
	}
	if err != nil { // its keeper gives up, and kills what it may have started
		if r.alive {
			w.exit(m, r, schema.Exit{Code: -1, Signal: "SIGKILL"})
			g.runs = slices.DeleteFunc(g.runs, func(x *run) bool { return x == r })
		}
		out.Fault = true
		return refuse(schema.CauseStartFailed, err.Error())
	}
	out.Process = r.state()
	out.Process.Limits = r.limits
	return out, false
}
