package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// broken is how long a link may be cut before both ends give it up.
	// Shorter cuts delay what is under way.
	broken    = 5 * time.Second
	redial    = time.Second // between two attempts of an agent
	pullEvery = 2 * time.Second
	remembers = 6 // messages of each way, which may come again
)

// link is what lies between a machine and the master.
type link struct {
	in  []message // under way to the machine
	out []message // under way to the master

	cutIn, cutOut time.Time // until when nothing gets through
	lost          bool      // it was cut for so long that its session is over
	late          time.Duration
	twice         bool // the next message comes twice

	oldIn, oldOut []message // the last ones
}

// message is a message on the link that has not arrived yet.
type message struct {
	sent, due time.Time
	epoch     uint64 // of the session

	hello  bool // from an agent that wants a session, or the answer to it
	view   schema.View
	report *schema.Report
}

// cut cuts a link for a while, in one way or both.
func (w *World) cut(m *machine, in, out bool, d time.Duration) {
	until := w.now.Add(d)
	if in && until.After(m.link.cutIn) {
		m.link.cutIn = until
	}
	if out && until.After(m.link.cutOut) {
		m.link.cutOut = until
	}
	m.link.lost = m.link.lost || d > broken
	w.note("the link of %s is cut for %s (to it: %t, from it: %t)", m.name, d, in, out)
	m.wakeBy(until)
}

// open reports whether a message gets through in both ways.
func (m *machine) open(now time.Time) bool {
	return !now.Before(m.link.cutIn) && !now.Before(m.link.cutOut)
}

// toMachine puts a message on its way to a machine.
func (w *World) toMachine(m *machine, l message) {
	l.sent = w.now
	if w.master != nil && w.master.busy.After(w.now) {
		l.sent = w.master.busy // it waits for the store before it says anything
	}
	w.post(m, &m.link.in, &m.link.oldIn, l)
}

// sendView puts a view on its way to a machine.
func (w *World) sendView(m *machine, v schema.View) {
	w.toMachine(m, message{epoch: v.Epoch, view: w.seal(m, v)})
}

// toMaster puts a message of an agent on its way.
func (w *World) toMaster(m *machine, l message) {
	l.sent = w.now
	w.post(m, &m.link.out, &m.link.oldOut, l)
}

func (w *World) post(m *machine, box, old *[]message, l message) {
	l.due = l.sent.Add(w.underway(m) + m.link.late)
	*box = append(*box, l)
	m.wakeBy(l.due)
	if m.link.twice {
		again := l
		again.due = l.due.Add(3 * slowest)
		*box = append(*box, again)
		m.wakeBy(again.due)
	}
	m.link.late, m.link.twice = 0, false
	if *old = append(*old, l); len(*old) > remembers {
		*old = (*old)[1:]
	}
}

// underway returns how long a message takes that is sent now.
func (w *World) underway(m *machine) time.Duration {
	if !w.cfg.Slow {
		return 0
	}
	return time.Duration(w.hash(uint64(w.turns), uint64(m.index)) % uint64(slowest)) //nolint:gosec // they are small
}

// hash returns a number that follows from the seed and its arguments: what
// chance would do, and not moved by what else has happened.
func (w *World) hash(of ...uint64) uint64 {
	h := w.cfg.Seed + 0x9e3779b97f4a7c15
	for _, n := range of {
		h ^= n
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// arrived takes the messages out of a box that get through now, the first first.
// A short cut holds them up, a long one loses them.
func (w *World) arrived(m *machine, box *[]message, cut time.Time) []message {
	var now, later []message
	for _, l := range *box {
		switch {
		case w.now.Before(l.due):
			later = append(later, l)
		case !w.now.Before(cut):
			now = append(now, l)
		case !m.link.lost:
			l.due = cut
			later = append(later, l)
		}
	}
	*box = later
	slices.SortStableFunc(now, func(a, b message) int { return cmp.Compare(a.due.UnixNano(), b.due.UnixNano()) })
	return now
}

// endSessions ends all sessions: the master is gone. What it has not said yet, since
// it waited for the store, it does not say.
func (w *World) endSessions() {
	for _, m := range w.machines {
		m.link.in = slices.DeleteFunc(m.link.in, func(l message) bool { return l.hello || l.sent.After(w.now) })
		if m.agent != nil && m.agent.session != 0 {
			m.agent.session, m.agent.dial = 0, w.now.Add(redial)
			m.wakeBy(m.agent.dial)
		}
	}
}

// endSession ends the session of an epoch, with those before it that it has replaced, and
// the welcomes to them that are under way: its agent dials again from a time on.
func (w *World) endSession(m *machine, epoch uint64, dial time.Time) {
	m.link.in = slices.DeleteFunc(m.link.in, func(l message) bool { return l.hello && l.epoch <= epoch })
	if a := m.agent; a != nil && a.session != 0 && a.session <= epoch {
		a.session, a.dial = 0, dial
		m.wakeBy(dial)
	}
}

// receive takes what has arrived at a machine. It returns false when the agent
// died of it.
func (w *World) receive(m *machine) bool {
	a := m.agent
	for _, l := range w.arrived(m, &m.link.in, m.link.cutIn) {
		now := m.clock.read(w.now)
		switch {
		case l.epoch < a.core.Memory().Epoch, l.epoch < a.session:
			continue // of a session that is over
		case l.hello:
			if a.core.Welcome(l.epoch, now) == nil {
				a.session, a.report, a.news = l.epoch, nil, true
			}
		case l.epoch != a.session:
			l.due = w.now.Add(tick) // what a session says comes after its welcome
			m.link.in = append(m.link.in, l)
			m.wakeBy(l.due)
			continue
		default: // of two the older may come later here: it is refused
			if a.core.Assign(&l.view, now) == nil {
				a.news = true
			}
		}
		if !w.keepInput(m) {
			return false
		}
	}
	return true
}

// keepInput writes down what an input has changed, before it is answered.
func (w *World) keepInput(m *machine) bool {
	ready, more := m.agent.core.Ready(m.clock.read(w.now))
	return !more || w.store(m, ready.Writes)
}

// send dials, or says what is new, and every now and then what is not.
func (w *World) send(m *machine) {
	a := m.agent
	switch {
	case a.session == 0:
		if !w.now.Before(a.dial) && m.open(w.now) && w.master != nil {
			a.dial = w.now.Add(redial + slowest)
			w.toMaster(m, message{hello: true})
		}
		return
	case w.now.Sub(a.said) < tick:
		return
	}
	if a.fresh || a.report == nil {
		a.fresh = false
		a.report, a.said = w.reportOf(m), time.Time{}
	}
	if w.now.Sub(a.said) < pullEvery {
		return
	}
	a.said = w.now
	w.toMaster(m, message{epoch: a.session, report: a.report})
}
