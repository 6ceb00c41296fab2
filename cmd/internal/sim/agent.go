package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

const (
	scanEvery  = 30 * time.Second // between two scans for ports in use
	scanBusy   = 3 * time.Second  // while some are
	retryAfter = time.Second      // between two attempts at what the disk refused
	lookEvery  = 10 * time.Second // between two looks at how the machine is
)

// agent is one life of a machine's agent: all of it is lost when it dies.
type agent struct {
	epoch uint64 // with view, as on the disk
	view  *nodeagent.View
	life  nodeagent.Life
	held  []*nodeagent.Held
	stuck map[*nodeagent.Held]time.Time // what the disk refused is tried again then
	plan  nodeagent.Plan                // the last
	news  bool                          // something happened since then
	wake  time.Time                     // when it wants another

	session uint64         // epoch of the connection, 0 without one
	dial    time.Time      // when it is tried again to have one
	report  *schema.Report // the last that was sent
	fresh   bool           // there may be something else to say
	said    time.Time

	busy       []int // ports seen by the last scan
	scanned    time.Time
	conditions nodeagent.Conditions
	looked     time.Time
}

// startAgent starts an agent on what the disk has.
func (w *World) startAgent(m *machine) {
	w.note("the agent of %s starts", m.name)
	m.link.in = slices.DeleteFunc(m.link.in, func(l message) bool { return l.hello }) // of a connection that ended with who asked
	m.began = w.now
	m.agent = &agent{epoch: m.disk.epoch, view: m.disk.view, life: nodeagent.Life{Began: m.clock.read(w.now)}, stuck: map[*nodeagent.Held]time.Time{}, news: true}
	for _, g := range m.disk.generations {
		m.agent.held = append(m.agent.held, g.held())
	}
}

// turnAgent is a turn of nodeagent/loop.
func (w *World) turnAgent(m *machine) {
	a := m.agent
	if m.link.lost && m.open(w.now) {
		m.link.lost, a.session, a.dial = false, 0, w.now
	}
	if !w.receive(m) {
		return
	}
	w.learn(m)
	w.scan(m)
	w.look(m)
	for w.ask(m); a.news || !w.now.Before(a.wake); w.ask(m) {
		w.plan(m)
		for _, act := range a.plan.Actions {
			a.news = w.act(m, act) || a.news
			if m.agent != a || w.crashes(m) {
				return
			}
		}
	}
	w.send(m)
	w.rest(m)
}

// crashes counts an action of an agent that is to die after some.
func (w *World) crashes(m *machine) bool {
	if m.crashIn == 0 {
		return false
	}
	m.crashIn--
	return m.crashIn == 0 && w.KillAgent(m.name)
}

// rest takes down when the agent has something to do again.
func (w *World) rest(m *machine) {
	a := m.agent
	m.wakeBy(a.wake)
	if a.session == 0 {
		m.wakeBy(a.dial)
	}
	m.wakeBy(a.scanned.Add(a.scanPeriod()))
	m.wakeBy(a.looked.Add(lookEvery))
}

// plan has the agent decide.
func (w *World) plan(m *machine) {
	a, now := m.agent, m.clock.read(w.now)
	held := make([]nodeagent.Held, len(a.held))
	for i, h := range a.held {
		held[i] = *h
	}
	a.plan = nodeagent.Decide(nodeagent.Input{
		Machine: m.name, Boot: m.bootID(), Now: now, Life: a.life, View: a.view, Held: held, Capacity: m.info().Capacity,
	})
	a.news, a.fresh, a.wake = false, true, w.now.Add(time.Hour)
	if !a.plan.Wake.IsZero() { // as a timer is set
		a.wake = w.now.Add(max(a.plan.Wake.Sub(now), tick))
	}
	for _, at := range a.stuck {
		if at.After(w.now) && at.Before(a.wake) {
			a.wake = at
		}
	}
}

// learn has the agent see which processes have ended, if any has since it looked.
func (w *World) learn(m *machine) {
	if !m.ended {
		return
	}
	m.ended = false
	for _, h := range m.agent.held {
		if len(h.Incarnations) == 0 {
			continue
		}
		c := &h.Incarnations[len(h.Incarnations)-1]
		if c.Exit != nil {
			continue
		}
		if r := m.run(h, c.Number); r != nil && r.exit != nil {
			c.Exit, c.EndedItself, c.GoneAt, m.agent.news = r.exit, r.endedItself, m.clock.read(w.now), true
		}
	}
}

// scan looks which ports are in use by others, every now and then.
func (w *World) scan(m *machine) {
	a := m.agent
	if w.now.Sub(a.scanned) >= a.scanPeriod() {
		a.scanned, a.busy, a.fresh = w.now, slices.Sorted(maps.Keys(m.foreign)), true
	}
}

func (a *agent) scanPeriod() time.Duration {
	if len(a.busy) > 0 {
		return scanBusy
	}
	return scanEvery
}

// look looks how the machine is.
func (w *World) look(m *machine) {
	a, now := m.agent, m.clock.read(w.now)
	a.conditions.Turn(now)
	if w.now.Sub(a.looked) < lookEvery {
		return
	}
	a.looked, a.news = w.now, true
	for _, kind := range schema.ConditionKinds() {
		until, known := m.troubles[kind]
		if !known {
			continue
		}
		if w.now.Before(until) {
			a.conditions.See(kind, nodeagent.Bad, "as is simulated", now)
		} else {
			a.conditions.See(kind, nodeagent.Good, "", now)
		}
	}
	ahead := w.clock.ahead - m.clock.ahead
	a.conditions.SeeClock(ahead, slowest, now)
}

// reportOf returns what the agent says now, as another host gets it.
func (w *World) reportOf(m *machine) *schema.Report {
	a := m.agent
	r := &schema.Report{Machine: m.info(), Tasks: slices.Clone(a.plan.Tasks), BusyPorts: a.busy, Conditions: a.conditions.List(), Overload: a.plan.Overload}
	if a.view != nil {
		r.View = a.view.Version
	}
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
	return r
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
