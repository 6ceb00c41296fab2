package sim

import (
	"time"

	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// faults are the actions that nobody wants. What N is stands beside each; those
// that last for a while end by themselves.
func faults() map[ActionKind]func(*World, Action) bool {
	return map[ActionKind]func(*World, Action) bool{
		"kill-master":   func(w *World, _ Action) bool { return w.KillMaster() },
		"freeze-master": (*World).freezes,     // for N seconds, and another takes its place
		"stop-master":   (*World).stopsMaster, // for N seconds, and nobody takes its place
		"set-clock":     (*World).setsClock,   // of the master's host, by N seconds
		"fail-store":    (*World).failsStore,  // the transaction after N/2 more, which takes effect when N is odd
		"slow-store":    (*World).slowsStore,  // for N seconds
		"lose-store":    (*World).losesStore,  // for N seconds
		"lose-git":      (*World).losesGit,    // for N seconds
		"split-master":  (*World).splits,      // another leads, and the old one goes on for N/2 seconds, with half of the machines
		"move-master":   (*World).movesMaster, // to a host whose clock is set otherwise by N seconds
		"restore":       (*World).restores,    // the store, to the N-th of the last snapshots
		"go-back":       (*World).goesBack,    // to this release, after a later one has led for N seconds

		"kill-agent":        func(w *World, a Action) bool { return w.KillAgent(w.machine(a).name) },
		"crash-agent":       (*World).crashesAgent, // after N more actions of it
		"stop-agent":        (*World).stopsAgent,   // for N seconds
		"halt":              (*World).halts,        // agent and tasks for N/2 seconds, in order when N is odd
		"reboot":            func(w *World, a Action) bool { return w.Reboot(w.machine(a).name) },
		"lose-machine":      (*World).losesMachine,     // its link is cut for N/2 seconds, a minute at least; with its tasks when N is odd
		"lose-disk":         (*World).losesDisk,        // Machine restarts, with an empty state directory
		"ask-for-name":      (*World).asksForName,      // another machine asks for the name of Machine, for N seconds
		"overload":          (*World).overloads,        // Machine, for N seconds
		"set-machine-clock": (*World).setsMachineClock, // by N seconds
		"fail-disk":         (*World).failsDisk,        // the write after N/6 more meets the fate N
		"fill-disk":         (*World).fillsDisk,        // for N seconds
		"trouble":           (*World).troubles,         // the N-th condition, for N seconds
		"kill-task":         (*World).killsTask,        // the N-th that runs on Machine
		"take-port":         (*World).takesPort,        // the N-th of the range, or gives it back

		"cut":       func(w *World, a Action) bool { return w.cuts(a, true, true, w.alone) }, // for N seconds, as below
		"cut-in":    func(w *World, a Action) bool { return w.cuts(a, true, false, w.alone) },
		"cut-out":   func(w *World, a Action) bool { return w.cuts(a, false, true, w.alone) },
		"cut-rack":  func(w *World, a Action) bool { return w.cuts(a, true, true, w.rackOf) },
		"cut-half":  func(w *World, a Action) bool { return w.cuts(a, a.N%3 != 0, a.N%3 != 1, w.halfOf) },
		"delay":     (*World).delays,     // the next message of Machine's link, by N seconds
		"duplicate": (*World).duplicates, // the next message of Machine's link
		"replay":    (*World).replays,    // the N-th of the last messages, of either way
	}
}

// between returns a duration from low to high, both in seconds, that n picks.
func between(n, low, high int) time.Duration {
	return time.Duration(low+modulo(n, high-low+1)) * time.Second
}

// mostly is a short time, and one time in eight a long one.
func mostly(n, short, long int) time.Duration {
	if modulo(n, 8) == 0 {
		return between(n/8, short, long)
	}
	return between(n/8, 1, short)
}

// until moves the end of a fault, and reports whether that is new.
func (w *World) until(t *time.Time, d time.Duration, what string) bool {
	if !w.now.Add(d).After(*t) {
		return false
	}
	*t = w.now.Add(d)
	w.note("%s for %s", what, d)
	return true
}

func (w *World) freezes(a Action) bool { return w.frozen == nil && w.FreezeMaster(between(a.N, 2, 30)) }

func (w *World) stopsMaster(a Action) bool {
	return w.master != nil && w.until(&w.master.busy, mostly(a.N, 5, 90), "the master is stopped")
}

// setsClock: small corrections and large mistakes, both ways.
func (w *World) setsClock(a Action) bool {
	w.clock.ahead = jump(a.N)
	w.oracle.clockSet(w.now, w.master)
	w.note("the clock of the master's host is ahead by %s", w.clock.ahead)
	if w.master != nil {
		w.master.news = true // at the next report, which is soon
	}
	return true
}

func (w *World) setsMachineClock(a Action) bool {
	m := w.machine(a)
	m.clock.ahead, m.clockSet = jump(a.N), w.now
	w.note("the clock of %s is ahead by %s", m.name, m.clock.ahead)
	m.wakeBy(w.now)
	return true
}

func jump(n int) time.Duration {
	by := []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour}[modulo(n/2, 5)]
	if modulo(n, 2) == 1 {
		return -by
	}
	return by
}

func (w *World) failsStore(a Action) bool {
	n, fate := w.memory.Transactions()+1+modulo(a.N/2, 8), store.Refused
	if modulo(a.N, 2) == 1 {
		fate = store.Forgotten
	}
	w.txns[n] = fate
	return true
}

// transaction is the fate of the store's n-th transaction.
func (w *World) transaction(n int) store.Fate {
	f := w.txns[n]
	delete(w.txns, n)
	if w.now.Before(w.gone) {
		return store.Refused
	}
	return f
}

func (w *World) slowsStore(a Action) bool {
	return w.until(&w.slow, between(a.N, 1, 20), "the store is slow")
}

func (w *World) losesStore(a Action) bool {
	return w.until(&w.gone, mostly(a.N, 4, 60), "the store is gone")
}

func (w *World) losesGit(a Action) bool {
	return w.until(&w.gitGone, between(a.N, 1, 30), "the repository is gone")
}

func (w *World) crashesAgent(a Action) bool {
	m := w.machine(a)
	if m.agent == nil || m.crashIn > 0 {
		return false
	}
	m.crashIn = 1 + modulo(a.N, 5)
	return true
}

func (w *World) stopsAgent(a Action) bool {
	m := w.machine(a)
	return m.agent != nil && w.until(&m.stopped, mostly(a.N, 5, 90), "the agent of "+m.name+" is stopped")
}

func (w *World) halts(a Action) bool {
	return w.Halt(w.machine(a).name, mostly(a.N/2, 40, 150), modulo(a.N, 2) == 1)
}

func (w *World) failsDisk(a Action) bool {
	m := w.machine(a)
	n := m.disk.writes + 1 + modulo(a.N/6, 3)
	if m.disk.fates[n] != taken {
		return false
	}
	m.disk.fates[n] = refused + writeOutcome(modulo(a.N, int(fates)-1))
	return true
}

func (w *World) fillsDisk(a Action) bool {
	m := w.machine(a)
	return w.until(&m.disk.full, mostly(a.N, 5, 40), "the disk of "+m.name+" is full")
}

func (w *World) troubles(a Action) bool {
	m, kinds := w.machine(a), schema.ConditionKinds()
	kind := kinds[modulo(a.N, len(kinds))]
	if kind == schema.ClockSkew || kind == schema.BrokenRuntime || w.now.Before(m.troubles[kind]) {
		return false // these come of clocks and starts
	}
	d := between(a.N/8, 10, 60)
	w.note("%s has %s for %s", m.name, kind, d)
	m.troubles[kind] = w.now.Add(d)
	return true
}

func (w *World) killsTask(a Action) bool {
	m := w.machine(a)
	var own []*run
	for _, r := range m.alive {
		if r.of.assignment.Job.Kind != schema.Allocs { // that has no process
			own = append(own, r)
		}
	}
	if len(own) == 0 {
		return false
	}
	w.exit(m, own[modulo(a.N, len(own))], schema.Exit{Code: -1, Signal: "SIGKILL"})
	return true
}

func (w *World) takesPort(a Action) bool {
	m, port := w.machine(a), 20000+modulo(a.N, 100)
	if m.foreign[port] = !m.foreign[port]; !m.foreign[port] {
		delete(m.foreign, port)
	}
	return m.foreign[port]
}

func (w *World) alone(a, b *machine) bool  { return a == b }
func (w *World) rackOf(a, b *machine) bool { return a.rack() == b.rack() }
func (w *World) halfOf(a, b *machine) bool { return a.index%2 == b.index%2 }

func (w *World) cuts(a Action, in, out bool, with func(a, b *machine) bool) bool {
	d := mostly(a.N, 8, 100)
	for _, m := range w.machines {
		if with(w.machine(a), m) {
			w.cut(m, in, out, d)
		}
	}
	return true
}

func (w *World) delays(a Action) bool {
	l := &w.machine(a).link
	was := l.late
	l.late = between(a.N, 1, 6)
	return was == 0
}

func (w *World) duplicates(a Action) bool {
	l := &w.machine(a).link
	was := l.twice
	l.twice = true
	return !was
}

// replays has an old message come again: what a link shard does that acts on an
// old view.
func (w *World) replays(a Action) bool {
	m := w.machine(a)
	box, old, n := &m.link.in, m.link.oldIn, a.N/2
	if modulo(a.N, 2) == 1 {
		box, old = &m.link.out, m.link.oldOut
	}
	if len(old) == 0 {
		return false
	}
	l := old[modulo(n, len(old))]
	if l.sent.After(w.now) || l.hello {
		return false
	}
	l.due = w.now
	*box = append(*box, l)
	m.wakeBy(w.now)
	return true
}

// heal ends all faults.
func (w *World) heal() {
	w.frozen = nil
	w.endRival("all is well")
	w.laterUntil = time.Time{}
	w.memory.Hook(nil)
	clear(w.txns)
	w.oracle.clockSet(w.now, w.master)
	w.gone, w.slow, w.gitGone, w.clock.ahead = time.Time{}, time.Time{}, time.Time{}, 0
	for _, m := range w.machines {
		if m.agent == nil {
			m.agentAt = w.now
		}
		if m.clock.ahead != 0 {
			m.clock.ahead, m.clockSet = 0, w.now
		}
		m.crashIn, m.stopped, m.disk.full = 0, time.Time{}, time.Time{}
		m.link.cutIn, m.link.cutOut, m.link.late, m.link.twice = time.Time{}, time.Time{}, 0, false
		m.stranger, m.overloaded = time.Time{}, time.Time{}
		clear(m.foreign)
		clear(m.disk.fates)
		for kind := range m.troubles {
			m.troubles[kind] = w.now
		}
		m.wakeBy(w.now)
	}
}
