package sim

import (
	"context"
	"errors"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/store"
)

// splits has another master take over while the one that led goes on: it keeps the
// connections of half of the machines, and does not know that it leads no more.
func (w *World) splits(a Action) bool {
	if w.master == nil || w.rival != nil || w.now.Before(w.master.busy) || w.now.Before(w.gone) {
		return false
	}
	old := w.master
	w.note("another master takes over, and the old one goes on")
	for _, m := range w.machines {
		if m.index%2 == a.N%2 && m.agent != nil {
			w.endSession(m, old.epochs[m.name], w.now)
			delete(old.epochs, m.name)
		}
	}
	w.rival, w.rivalEnd = old, w.now.Add(between(a.N/2, 2, 20))
	w.master, w.masterAt = nil, w.now
	return true
}

// rivalReport takes what a machine says to a master that leads no more; it reports
// whether it is one of its own.
func (w *World) rivalReport(machine *machine, l message) bool {
	m := w.rival
	if m == nil || l.report == nil || m.epochs[machine.name] != l.epoch {
		return false
	}
	if err := m.Report(machine.name, l.epoch, *l.report, w.clock.read(w.now)); err != nil {
		w.violate("%v", err)
	}
	m.news = m.news || m.News()
	return true
}

// turnRival has a master that leads no more act on: the store must refuse what it
// writes, upon which it ends, and machines that have joined the new one what it says.
func (w *World) turnRival() {
	m := w.rival
	if m == nil || w.master == nil {
		return // the new one does not lead yet
	}
	if w.now.After(w.rivalEnd) {
		w.endRival("its lease has ended")
		return
	}
	if !m.news && (m.wake.IsZero() || w.now.Before(m.wake)) {
		return
	}
	m.news = false
	in := w.master.in // of which a step takes note
	m.Decide()
	defer func() {
		if w.master != nil {
			w.master.in = in
		}
	}()
	for w.rival != nil {
		ready, more := m.Ready(w.clock.read(w.now))
		if !more {
			return
		}
		if batches := model.Batches(ready.Writes); len(batches) > 0 {
			err := m.store.Commit(context.Background(), batches[0])
			if !errors.Is(err, store.ErrNotLeader) && !errors.Is(err, store.ErrInjected) {
				w.violate("a master that was replaced writes: %v", err)
			}
			w.endRival("its write was refused")
			return
		}
		m.Advance(w.clock.read(w.now))
		for _, v := range ready.Views {
			w.sendView(w.named(v.Machine), v.View)
		}
	}
}

// endRival ends a master that leads no more, with the connections that it has.
func (w *World) endRival(why string) {
	m := w.rival
	if m == nil {
		return
	}
	w.note("the old master ends: %s", why)
	w.rival = nil
	for _, machine := range w.machines {
		w.endSession(machine, m.epochs[machine.name], w.now.Add(redial))
	}
}

// movesMaster has a master lead on another host, whose clock is set otherwise.
func (w *World) movesMaster(a Action) bool {
	if w.master != nil {
		w.endMaster()
	}
	w.note("another host is to lead")
	return w.setsClock(a)
}
