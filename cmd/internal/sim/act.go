package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// act does one action of an agent, as nodeagent/loop does, and reports whether
// that changed anything. What the disk refuses is tried again after a while.
func (w *World) act(m *machine, a nodeagent.Action) bool {
	h := m.agent.find(a)
	if at, stuck := m.agent.stuck[h]; stuck && h != nil && w.now.Before(at) {
		return false
	}
	if h == nil { // one that was never started, and starts or ends now
		h = &nodeagent.Held{Assignment: *m.agent.assignment(a)}
		m.agent.held = append(m.agent.held, h)
	}
	err := w.do(m, h, a)
	switch {
	case m.agent == nil:
		return false
	case err != nil:
		m.agent.stuck[h] = w.now.Add(retryAfter)
		return false
	}
	delete(m.agent.stuck, h)
	return true
}

func (w *World) do(m *machine, h *nodeagent.Held, a nodeagent.Action) error {
	now := m.clock.read(w.now)
	var c *nodeagent.Incarnation
	if len(h.Incarnations) > 0 {
		c = &h.Incarnations[len(h.Incarnations)-1]
	}
	switch a.Kind {
	case nodeagent.Start:
		return w.start(m, h, a)
	case nodeagent.Term:
		return w.actTerm(m, h, a)
	case nodeagent.Kill:
		c.KilledAt = now
		r := m.run(h, c.Number)
		if r.alive && (r.termed.IsZero() || r.stop == nil) {
			w.violate("task %s generation %d is killed on %s before it was told to stop, with a cause", a.Task, a.Generation, m.name)
		}
		w.checkGrace(m, h, r)
		w.exit(m, r, schema.Exit{Code: -1, Signal: "SIGKILL"})
	case nodeagent.Limit:
		c.Limits, c.LimitsTried, c.LimitsAt = a.Limits, a.Limits, now
		m.run(h, c.Number).limits = a.Limits
	case nodeagent.Reap:
		c.Exit = a.Exit
	case nodeagent.End:
		return w.end(m, h, a)
	case nodeagent.Prune:
		return w.prune(m, h, a)
	case nodeagent.Remove:
		return w.removes(m, h)
	}
	return nil
}

func (a *agent) find(of nodeagent.Action) *nodeagent.Held {
	for _, h := range a.held {
		if h.Assignment.Generation == of.Generation && h.Assignment.Task == of.Task {
			return h
		}
	}
	return nil
}

func (a *agent) assignment(of nodeagent.Action) *schema.Assignment {
	if of.Assignment != nil {
		return of.Assignment
	}
	for i := range a.view.Assignments {
		if v := &a.view.Assignments[i]; v.Task == of.Task && v.Generation == of.Generation {
			return v
		}
	}
	return &schema.Assignment{Task: of.Task, Generation: of.Generation}
}

// keep writes the assignment of a generation down, if that is not done.
func (w *World) keep(m *machine, h *nodeagent.Held) (*generation, error) {
	name := file(h, "assignment.json")
	g := m.disk.find(h.Assignment.Task, h.Assignment.Generation)
	if g != nil && m.disk.unsynced[name] == nil {
		return g, nil
	}
	if g == nil {
		g = &generation{assignment: h.Assignment}
	}
	return g, w.write(m, name, func() {
		m.disk.remove(g)
		m.disk.generations = append(m.disk.generations, g)
	}, func() { m.disk.remove(g) })
}

func file(h *nodeagent.Held, name string) string {
	return fmt.Sprintf("%s/%d/%s", h.Assignment.Task.Short(), h.Assignment.Generation, name)
}

// start starts an incarnation, or says why it cannot be.
func (w *World) start(m *machine, h *nodeagent.Held, a nodeagent.Action) error {
	w.checkStart(a)
	refuse := func(kind schema.CauseKind, message string) error {
		h.Refused = &schema.Cause{Kind: kind, Message: message}
		w.note("%s refuses %s generation %d: %s", m.name, a.Task.Short(), a.Generation, message)
		return nil
	}
	now := m.clock.read(w.now)
	g, err := w.keep(m, h)
	switch {
	case errors.Is(err, errDied):
		return err
	case err != nil:
		return refuse(schema.CauseStartFailed, "keep the assignment: "+err.Error())
	}
	for _, p := range a.Assignment.Ports {
		if m.foreign[p] || m.listens(p) {
			m.agent.scanned = w.now.Add(-scanEvery)
			return refuse(schema.CausePortInUse, "a port is in use")
		}
	}
	r := &run{of: g, number: a.Incarnation, boot: m.bootID(), limits: nodeagent.LimitsOf(a.Assignment.Job)}
	err = w.write(m, file(h, "state.json"), func() { g.runs = append(g.runs, r); w.begin(m, r) }, func() {
		g.runs = slices.DeleteFunc(g.runs, func(x *run) bool { return x == r })
	})
	if errors.Is(err, errDied) {
		return err
	}
	if err != nil { // its keeper gives up, and kills what it may have started
		if r.alive {
			w.exit(m, r, schema.Exit{Code: -1, Signal: "SIGKILL"})
			g.runs = slices.DeleteFunc(g.runs, func(x *run) bool { return x == r })
		}
		m.agent.conditions.SeeStart(err.Error(), now)
		h.Incarnations = append(h.Incarnations, nodeagent.Incarnation{
			Number: a.Incarnation, Boot: m.bootID(), Exit: &schema.Exit{Incarnation: a.Incarnation, Code: -1, At: now, Message: "could not be started"},
		})
		return refuse(schema.CauseStartFailed, err.Error())
	}
	m.agent.conditions.SeeStart("", now)
	c := r.incarnation()
	c.Limits, c.Unconfirmed = r.limits, a.Unconfirmed
	h.Incarnations = append(h.Incarnations, c)
	return nil
}

// actTerm writes the cause down before the process can see the signal.
func (w *World) actTerm(m *machine, h *nodeagent.Held, a nodeagent.Action) error {
	c := &h.Incarnations[len(h.Incarnations)-1]
	r := m.run(h, c.Number)
	w.checkTerm(m, a)
	w.checkUnhealthy(h, r, a.Cause)
	if c.Stop == nil {
		cause := serializedCause(a.Cause)
		if err := w.write(m, file(h, "stop.json"), func() { r.stop = cause }, func() { r.stop = nil }); err != nil {
			return err
		}
		c.Stop = a.Cause
	}
	c.TermAt = m.clock.read(w.now)
	w.term(m, r)
	return nil
}

// end writes the end of a generation down; only then is it reported.
func (w *World) end(m *machine, h *nodeagent.Held, a nodeagent.Action) error {
	g, err := w.keep(m, h)
	if err != nil {
		return err
	}
	cause := serializedCause(a.Cause)
	if err := w.write(m, file(h, "end.json"), func() { g.end = cause }, func() { g.end = nil }); err != nil {
		return err
	}
	h.End = a.Cause
	w.moved = true
	return nil
}

func (w *World) prune(m *machine, h *nodeagent.Held, a nodeagent.Action) error {
	h.Incarnations = slices.DeleteFunc(h.Incarnations, func(c nodeagent.Incarnation) bool { return c.Number == a.Incarnation })
	g, r := m.disk.find(a.Task, a.Generation), m.run(h, a.Incarnation)
	if r == nil {
		return nil
	}
	return w.write(m, file(h, fmt.Sprint(a.Incarnation)),
		func() { g.runs = slices.DeleteFunc(g.runs, func(x *run) bool { return x == r }) },
		func() { g.runs = append([]*run{r}, g.runs...) })
}

func (w *World) removes(m *machine, h *nodeagent.Held) error {
	g := m.disk.find(h.Assignment.Task, h.Assignment.Generation)
	err := w.write(m, file(h, ""), func() { m.disk.remove(g) }, func() { m.disk.generations = append(m.disk.generations, g) })
	if err != nil {
		return err
	}
	m.agent.held = slices.DeleteFunc(m.agent.held, func(x *nodeagent.Held) bool { return x == h })
	return nil
}
