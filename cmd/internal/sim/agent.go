package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// lookEvery is the time between two looks at how the machine is.
const lookEvery = 10 * time.Second

// agent is one life of a machine's agent: all of it is lost when it dies.
type agent struct {
	core   *nodeagent.Agent
	checks []nodeagent.Check // that go on
	news   bool              // something happened since its last turn
	wake   time.Time         // when it wants another

	session uint64         // epoch of the connection, 0 without one
	dial    time.Time      // when it is tried again to have one
	report  *schema.Report // the last that was sent
	fresh   bool           // there may be something else to say
	said    time.Time
	coming  map[string]time.Time // what is being brought, and until when
}

// startAgent starts an agent on what the disk has.
func (w *World) startAgent(m *machine) {
	w.note("the agent of %s starts", m.name)
	m.link.in = slices.DeleteFunc(m.link.in, func(l message) bool { return l.hello }) // of a connection that ended with who asked
	m.began = w.now
	found := nodeagent.Found{Memory: nodeagent.Memory{Epoch: m.disk.epoch, View: m.disk.view}}
	for _, g := range m.disk.generations {
		found.Tasks = append(found.Tasks, nodeagent.FoundTask{Held: g.held(), Written: true})
	}
	cfg := nodeagent.AgentConfig{Cell: cellName, Machine: m.info(), LookEvery: lookEvery}
	m.agent = &agent{core: nodeagent.NewAgent(cfg, found, m.clock.read(w.now)), news: true, coming: map[string]time.Time{}}
}

// turnAgent lets an agent receive what has happened, decide, and act.
func (w *World) turnAgent(m *machine) {
	a := m.agent
	if m.link.lost && m.open(w.now) {
		m.link.lost, a.session, a.dial = false, 0, w.now
	}
	if !w.receive(m) {
		return
	}
	w.learn(m)
	w.brought(m)
	for w.ask(m); a.news || !w.now.Before(a.wake); w.ask(m) {
		a.news = false
		a.core.Decide()
		if !w.carryOutAgent(m) {
			return
		}
		now := m.clock.read(w.now)
		a.wake = w.now.Add(max(a.core.Wake().Sub(now), tick)) // as a timer is set
	}
	w.send(m)
	m.wakeBy(a.wake)
	if a.session == 0 {
		m.wakeBy(a.dial)
	}
}

// carryOutAgent does what an agent wants done, as nodeagent/loop does. It returns false when
// the agent died of it.
func (w *World) carryOutAgent(m *machine) bool {
	a, now := m.agent, m.clock.read(w.now)
	for {
		ready, more := a.core.Ready(now)
		if !more {
			return true
		}
		if !w.store(m, ready.Writes) {
			return false
		}
		if ready.Clocks {
			a.core.Clock(w.clock.ahead-m.clock.ahead, slowest, now)
		}
		if ready.Look {
			w.look(m)
		}
		if ready.Room {
			a.core.Room(w.room(m))
		}
		if ready.Action != nil {
			if w.act(m, ready.Action); m.agent != a || w.crashes(m) {
				return false
			}
		}
		if t := ready.Turn; t != nil {
			a.checks, a.fresh = t.Checks, a.fresh || t.News
			w.measure(m, t)
		}
	}
}

// measure gives an agent what it wants to know of its machine.
func (w *World) measure(m *machine, t *nodeagent.Turn) {
	a := m.agent
	if t.Ports {
		a.core.Scanned(slices.Sorted(maps.Keys(m.foreign)))
		a.news = true
	}
	w.bring(m, t)
	if len(t.Lines) > 0 {
		a.core.Lines(t.Lines, make([]string, len(t.Lines)))
	}
	if len(t.CPU) > 0 {
		a.core.Measured(m.clock.read(w.now), t.CPU)
	}
}

// crashes counts an action of an agent that is to die after some.
func (w *World) crashes(m *machine) bool {
	if m.crashIn == 0 {
		return false
	}
	m.crashIn--
	return m.crashIn == 0 && w.KillAgent(m.name)
}

// learn has the agent see which processes have ended, if any has since it looked.
func (w *World) learn(m *machine) {
	if !m.ended {
		return
	}
	m.ended = false
	now := m.clock.read(w.now)
	for _, x := range m.agent.core.Alive() {
		if r := m.run(x.TaskRef, x.Incarnation); r != nil && r.exit != nil {
			m.agent.core.Exited(x, r.state(), now)
			m.agent.news = true
		}
	}
}

// look looks how the machine is.
func (w *World) look(m *machine) {
	a, now := m.agent.core, m.clock.read(w.now)
	a.Sampled(*w.room(m), nil, now)
	var writable error
	for _, kind := range schema.ConditionKinds() {
		until, known := m.troubles[kind]
		switch bad := w.now.Before(until); {
		case !known:
		case kind == schema.ReadOnlyFS && bad:
			writable = errors.New("as is simulated")
		case bad:
			a.Condition(kind, nodeagent.Bad, "as is simulated", now)
		default:
			a.Condition(kind, nodeagent.Good, "", now)
		}
	}
	a.Looked(writable, now)
}

// room is what a machine has left: as much as there is need for.
func (w *World) room(m *machine) *schema.MachineUsage {
	return &schema.MachineUsage{At: m.clock.read(w.now)}
}

// reportOf returns what the agent says now, as another host gets it.
func (w *World) reportOf(m *machine) *schema.Report {
	r := *m.agent.core.Report()
	r.Overload = w.asks(m) // no clock of a simulated processor says so
	r.Tasks, r.Conditions = slices.Clone(r.Tasks), slices.Clone(r.Conditions)
	for i := range r.Conditions {
		r.Conditions[i].Since = serialized(r.Conditions[i].Since)
	}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		if !t.RestartAt.IsZero() {
			t.RestartAt = serialized(t.RestartAt)
		}
		t.End = serializedCause(t.End)
		for i := range t.Exits {
			t.Exits[i].At = serialized(t.Exits[i].At)
		}
	}
	return &r
}

// serializedCause returns c as another process gets it.
func serializedCause(c *schema.Cause) *schema.Cause {
	if c == nil {
		return nil
	}
	t := *c
	t.At = serialized(t.At)
	return &t
}
