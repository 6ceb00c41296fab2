package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

const (
	batchTime = 2 * time.Second  // that a batch task runs
	crashTime = 1 * time.Second  // until a task whose argument is "crash" does
	scanEvery = 30 * time.Second // between two scans for ports in use
)

// machine is one machine: its disk (epoch, view, held) outlives its agent, its
// processes outlive that too, but not the machine's boot.
type machine struct {
	name   string
	boot   int
	epoch  uint64
	view   *nodeagent.View
	held   []*nodeagent.Held
	plan   nodeagent.Plan // of the agent's last decision
	silent bool           // nothing it says arrives, nothing reaches it

	connected bool      // to a master, since the agent started
	inbox     []letter  // views under way to it
	outbox    *outgoing // the report under way from it
	reached   time.Time // since when it and a master hear each other

	foreign map[int]bool // ports that others than tasks use
	busy    []int        // of them, those seen by the last scan
	scanned time.Time

	agentDown bool
	agentAt   time.Time // when the agent starts again
	crashIn   int       // the agent dies after this many actions; 0 never
}

// letter is a view under way.
type letter struct {
	due     time.Time
	epoch   uint64
	version uint64
	view    []schema.Assignment
}

// outgoing is a report under way.
type outgoing struct {
	due    time.Time
	report schema.Report
}

func newMachine(name string) *machine {
	return &machine{name: name, boot: 1, foreign: map[int]bool{}}
}

func (m *machine) bootID() string { return fmt.Sprintf("%s-%d", m.name, m.boot) }

func (m *machine) info() schema.MachineInfo {
	return schema.MachineInfo{
		Name: m.name, Boot: m.bootID(), Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 8 << 30, DiskBytes: 64 << 30},
		Ports:   schema.PortRange{First: 20000, Last: 20099},
		Devices: []schema.DeviceGroup{{Kind: "gpu", Count: 2}},
	}
}

// receive takes the views that have arrived, as the link does: one that is
// older than what the disk has is refused.
func (w *World) receive(m *machine) {
	var later []letter
	for _, l := range m.inbox {
		if m.silent || w.now.Before(l.due) {
			later = append(later, l)
			continue
		}
		v := &nodeagent.View{Epoch: l.epoch, Version: l.version, Assignments: slices.Clone(l.view)}
		if v.Newer(m.view) || w.cfg.Mutant.Stale {
			m.view = v
		}
	}
	m.inbox = later
}

// send puts a report on its way, if none is.
func (w *World) send(m *machine) {
	if m.outbox != nil || !m.connected || m.silent {
		return
	}
	r := schema.Report{Machine: m.info(), Tasks: slices.Clone(m.plan.Tasks), BusyPorts: m.busy}
	if m.view != nil {
		r.View = m.view.Version
	}
	m.outbox = &outgoing{w.underway(), r}
}

// scan looks which ports are in use by others, every now and then.
func (w *World) scan(m *machine) {
	if w.now.Sub(m.scanned) < scanEvery {
		return
	}
	m.scanned, m.busy = w.now, slices.Sorted(maps.Keys(m.foreign))
}

// turnMachine lets processes end by themselves and the agent decide and act.
func (w *World) turnMachine(m *machine) {
	for _, h := range m.held {
		w.turnTask(m, h)
	}
	if m.agentDown {
		if w.now.Before(m.agentAt) {
			return
		}
		m.agentDown = false
		w.note("the agent of %s starts", m.name)
		m.forget()
	}
	w.receive(m)
	w.scan(m)
	m.plan = m.decide(w.now)
	w.ask(m)
	m.plan = m.decide(w.now)
	for _, a := range m.plan.Actions {
		w.act(m, a)
		if m.crashIn > 0 {
			if m.crashIn--; m.crashIn == 0 {
				w.KillAgent(m.name)
				return
			}
		}
	}
	m.plan = m.decide(w.now)
	w.send(m)
}

func (m *machine) decide(now time.Time) nodeagent.Plan {
	held := make([]nodeagent.Held, 0, len(m.held))
	for _, h := range m.held {
		c := *h
		c.Incarnations = slices.Clone(h.Incarnations)
		held = append(held, c)
	}
	return nodeagent.Decide(nodeagent.Input{Machine: m.name, Boot: m.bootID(), Now: now, View: m.view, Held: held, Capacity: m.info().Capacity})
}

// forget is what an agent's death takes with it: what it did not write down.
func (m *machine) forget() {
	for _, h := range m.held {
		h.Refused = nil
		for i := range h.Incarnations {
			c := &h.Incarnations[i]
			c.Limits = nodeagent.TaskLimits{}
			c.TermAt, c.KilledAt = time.Time{}, time.Time{}
			c.Probe = nodeagent.Known(c.Probe.State, c.Probe.Message)
		}
	}
	m.plan, m.connected, m.inbox, m.outbox = nodeagent.Plan{}, false, nil, nil
}

// named returns a machine by its name.
func (w *World) named(name string) *machine {
	i := slices.IndexFunc(w.machines, func(m *machine) bool { return m.name == name })
	return w.machines[i]
}

// KillAgent ends a machine's agent; its tasks run on. It returns false if there
// is none.
func (w *World) KillAgent(name string) bool {
	m := w.named(name)
	if m.agentDown {
		return false
	}
	w.note("the agent of %s is killed", name)
	m.agentDown, m.agentAt = true, w.now.Add(agentDown)
	return true
}

// Reboot ends everything on a machine; its disk stays. It returns true.
func (w *World) Reboot(name string) bool {
	m := w.named(name)
	w.note("machine %s restarts", name)
	m.boot++
	m.agentDown, m.agentAt = true, w.now.Add(5*agentDown)
	return true
}

// Silence cuts a machine off, or joins it again; false if it was so before.
func (w *World) Silence(name string, silent bool) bool {
	m := w.named(name)
	if m.silent == silent {
		return false
	}
	w.note("machine %s silent: %t", name, silent)
	m.silent = silent
	return true
}

// live returns the incarnation of h that is a process now, nil if none is.
func (m *machine) live(h *nodeagent.Held) *nodeagent.Incarnation {
	if len(h.Incarnations) == 0 {
		return nil
	}
	c := &h.Incarnations[len(h.Incarnations)-1]
	if c.Exit != nil || c.Boot != m.bootID() {
		return nil
	}
	return c
}

// turnTask lets time pass for a task's process: a batch task ends with 0 when
// its time has come, and what was told to stop stops.
func (w *World) turnTask(m *machine, h *nodeagent.Held) {
	c := m.live(h)
	if c == nil {
		return
	}
	argument := strings.Join(h.Assignment.Job.Task.Process.Command, " ")
	switch age := w.now.Sub(c.StartedAt); {
	case !w.termed[c.PID].IsZero() && w.now.Sub(w.termed[c.PID]) >= time.Duration(c.PID%8)*tick: // some take their time
		w.exit(h, c, schema.Exit{Code: -1, Signal: "SIGTERM"})
	case strings.Contains(argument, "crash") && age >= crashTime:
		w.exit(h, c, schema.Exit{Code: 3})
	case h.Assignment.Job.Kind == schema.Batch && age >= batchTime:
		r := w.oracle.record(h.Assignment.Task)
		if w.termed[c.PID].IsZero() && r != nil && r.Generation == h.Assignment.Generation { // what ends so after SIGTERM has not finished
			w.oracle.finished[h.Assignment.Task] = h.Assignment.Generation
		}
		w.exit(h, c, schema.Exit{Code: 0})
	}
}

func (w *World) exit(h *nodeagent.Held, c *nodeagent.Incarnation, e schema.Exit) {
	e.Incarnation, e.At = c.Number, w.now
	c.Exit = &e
	w.note("pid %d of %s ends: %s", c.PID, h.Assignment.Task.Short(), e)
}

// KillTask ends a task's process from outside; false if it has none.
func (w *World) KillTask(name schema.TaskName) bool {
	for _, m := range w.machines {
		for _, h := range m.held {
			if c := m.live(h); h.Assignment.Task == name && c != nil {
				w.exit(h, c, schema.Exit{Code: -1, Signal: "SIGKILL"})
				return true
			}
		}
	}
	return false
}

// act does one action of an agent, as nodeagent/loop does.
func (w *World) act(m *machine, a nodeagent.Action) {
	h := m.find(a)
	switch a.Kind {
	case nodeagent.Start:
		w.start(m, h, a)
	case nodeagent.Term:
		c := &h.Incarnations[len(h.Incarnations)-1]
		if a.Cause == nil || a.Cause.Kind == "" {
			w.violate("task %s is told to stop without a cause", a.Task)
		}
		w.checkTerm(m, a)
		w.checkUnhealthy(h, c, a.Cause)
		if c.Stop == nil {
			c.Stop = a.Cause
		}
		c.TermAt = w.now
		if w.termed[c.PID].IsZero() {
			w.termed[c.PID] = w.now
		}
	case nodeagent.Kill:
		c := &h.Incarnations[len(h.Incarnations)-1]
		c.KilledAt = w.now
		w.exit(h, c, schema.Exit{Code: -1, Signal: "SIGKILL"})
	case nodeagent.Limit:
		c := &h.Incarnations[len(h.Incarnations)-1]
		c.Limits, c.LimitsTried, c.LimitsAt = a.Limits, a.Limits, w.now
	case nodeagent.Reap:
		h.Incarnations[len(h.Incarnations)-1].Exit = a.Exit
	case nodeagent.End:
		if h == nil { // stopped before it was ever started
			h = &nodeagent.Held{Assignment: *m.assignment(a)}
			m.held = append(m.held, h)
		}
		h.End = a.Cause
	case nodeagent.Prune:
		h.Incarnations = slices.DeleteFunc(h.Incarnations, func(c nodeagent.Incarnation) bool { return c.Number == a.Incarnation })
	case nodeagent.Remove:
		m.held = slices.DeleteFunc(m.held, func(x *nodeagent.Held) bool { return x == h })
	}
}

// find returns the generation that an action is about, nil if the machine does
// not hold it yet.
func (m *machine) find(a nodeagent.Action) *nodeagent.Held {
	for _, h := range m.held {
		if h.Assignment.Task == a.Task && h.Assignment.Generation == a.Generation {
			return h
		}
	}
	return nil
}

func (m *machine) assignment(a nodeagent.Action) *schema.Assignment {
	for i := range m.view.Assignments {
		if v := &m.view.Assignments[i]; v.Task == a.Task && v.Generation == a.Generation {
			return v
		}
	}
	return &schema.Assignment{Task: a.Task, Generation: a.Generation}
}

func (w *World) start(m *machine, h *nodeagent.Held, a nodeagent.Action) {
	if h == nil {
		h = &nodeagent.Held{Assignment: *a.Assignment}
		m.held = append(m.held, h)
	}
	w.checkStart(a)
	for _, p := range a.Assignment.Ports {
		if m.foreign[p] || m.listens(p) {
			h.Refused = &schema.Cause{Kind: schema.CausePortInUse, Message: "a port is in use"}
			w.note("%s refuses %s generation %d: a port is in use", m.name, a.Task.Short(), a.Generation)
			return
		}
	}
	w.pids++
	c := nodeagent.Incarnation{Number: a.Incarnation, Boot: m.bootID(), PID: w.pids, StartedAt: w.now, Limited: true, Limits: nodeagent.LimitsOf(a.Assignment.Job)}
	h.Incarnations = append(h.Incarnations, c)
	w.note("%s starts %s generation %d incarnation %d as pid %d", m.name, a.Task.Short(), a.Generation, a.Incarnation, c.PID)
}

// listens reports whether a process of a task has port p.
func (m *machine) listens(p int) bool {
	return slices.ContainsFunc(m.held, func(h *nodeagent.Held) bool {
		return m.live(h) != nil && slices.Contains(slices.Collect(maps.Values(h.Assignment.Ports)), p)
	})
}
