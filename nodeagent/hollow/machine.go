package hollow

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/schema"
)

// machine is one hollow machine: its processes, and the agent that runs on it now, which
// leaves what a disk would have to the next. It belongs to the goroutine of its group, but for what
// others are said to use.
type machine struct {
	group *group
	name  string
	rng   *rand.Rand
	boots int
	pids  int

	info     schema.MachineInfo
	runs     []*run
	agent    atomic.Pointer[agent]  // anyone; nil before the first
	isolated atomic.Pointer[silent] // anyone; nil: its master gets its reports
	faults   faults

	wake  time.Time // when there is something to do
	place int       // in the timetable
}

// silent is a time in which no message of a machine passes.
type silent struct {
	until time.Time
	over  chan struct{} // closed at its end
}

// faults are when a machine's next faults are; zero for never.
type faults struct{ agent, reboot, silence time.Time }

func newMachine(g *group, index int) *machine {
	cfg := &g.fleet.cfg
	// What the machine is must not change with what has happened to it.
	m := &machine{group: g, info: describe(cfg, index), rng: rand.New(rand.NewPCG(^cfg.Seed, uint64(index)))} //nolint:gosec // not for secrets
	m.name = m.info.Name
	return m
}

// begin starts the machine.
func (m *machine) begin(ctx context.Context, now time.Time) {
	p := &m.group.fleet.cfg.Pattern
	m.faults = faults{m.after(now, p.AgentEvery), m.after(now, p.RebootEvery), m.after(now, p.SilentEvery)}
	m.boot()
	m.startAgent(ctx, now)
}

// boot gives the machine its next boot id.
func (m *machine) boot() {
	m.boots++
	m.info.Boot = m.group.fleet.boots + "-" + strconv.Itoa(m.boots)
}

// after draws a time from an exponential distribution; zero for a mean of 0.
func (m *machine) after(now time.Time, mean time.Duration) time.Time {
	if mean == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(m.rng.ExpFloat64() * float64(mean)))
}

// about draws a time between a half and one and a half of d, which may be 0.
func (m *machine) about(d time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return d/2 + time.Duration(m.rng.Int64N(int64(d)))
}

// turn does what is due: faults, what tasks do by themselves, and then what the agent
// makes of it.
func (m *machine) turn(now time.Time) {
	m.fail(now)
	m.advance(now)
	a := m.agent.Load()
	for a.due(now) {
		a.turn(now)
		m.advance(now) // what takes no time
	}
	wake := a.core.Wake()
	for _, r := range m.runs {
		wake = earliest(wake, r.due)
	}
	wake = earliest(wake, m.faults.agent, m.faults.reboot, m.faults.silence)
	if s := m.isolated.Load(); s != nil {
		wake = earliest(wake, s.until)
	}
	m.wake = wake
}

// earliest returns the first of times that is not zero, a zero t being never.
func earliest(t time.Time, others ...time.Time) time.Time {
	for _, o := range others {
		if !o.IsZero() && (t.IsZero() || o.Before(t)) {
			t = o
		}
	}
	return t
}

// fail has the machine's faults happen that are due.
func (m *machine) fail(now time.Time) {
	p := &m.group.fleet.cfg.Pattern
	due := func(at *time.Time, every time.Duration) bool {
		if at.IsZero() || at.After(now) {
			return false
		}
		*at = m.after(now, every)
		return true
	}
	if due(&m.faults.reboot, p.RebootEvery) {
		m.fall(now)
		m.startAgent(m.agent.Load().parent, now)
	}
	if due(&m.faults.agent, p.AgentEvery) {
		m.startAgent(m.agent.Load().parent, now)
	}
	if due(&m.faults.silence, p.SilentEvery) {
		m.silence(now.Add(p.SilentFor))
	}
	if s := m.isolated.Load(); s != nil && !s.until.After(now) {
		m.isolated.Store(nil)
		close(s.over)
	}
}

// fall ends the machine's boot with all processes, of which the disk says only that they
// were there, and begins the next.
func (m *machine) fall(now time.Time) {
	m.group.fleet.counts.rebooted.Add(1)
	for _, r := range m.runs {
		m.observeEnd(r, schema.Exit{Incarnation: r.Incarnation, Code: -1, At: now, Message: "the machine was rebooted"})
	}
	m.runs = nil
	m.boot()
}

// silence lets no message of the machine pass until a time.
func (m *machine) silence(until time.Time) {
	if s := m.isolated.Load(); s != nil { // it goes on
		s.until = until
		return
	}
	m.group.fleet.counts.silence.Add(1)
	m.isolated.Store(&silent{until: until, over: make(chan struct{})})
}

// heal ends a silence.
func (m *machine) heal(now time.Time) {
	if s := m.isolated.Load(); s != nil {
		s.until = now // which the turn that follows sees
	}
}
