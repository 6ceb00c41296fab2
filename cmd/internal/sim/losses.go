package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

const (
	// lostPercent of the machines of a cell, or of a rack, may be silent at once; one
	// always may be. No world's policy says otherwise.
	lostPercent = 30
	// lostLately is how long a machine that was given up goes on counting.
	lostLately = 10 * time.Minute
)

// losses is what the world knows of the machines that masters have given up.
type losses struct {
	since map[string]time.Time // machine → when it was given up
	held  map[string]time.Time // rack, or "" for the cell → when it was first seen to be held
}

// cellHealth counts machines: at least and at most, since the time of day at which a
// machine was given up says nothing once the clock was set.
type cellHealth struct{ most, down, mayDown, up int }

// over reports whether more are silent than may be, in any case.
func (h cellHealth) over() bool { return h.down > max(1, h.most*lostPercent/100) }

// mayBeOver reports whether more may be silent than may be.
func (h cellHealth) mayBeOver() bool {
	return h.mayDown > max(1, (h.up+h.mayDown)*lostPercent/100) || h.up == 0 && h.mayDown > 0
}

// health counts the machines that the cell knows, of a rack or, with "", all. A machine
// counts as given up lately until ten minutes after that: by now, or, while the part is
// held, by when that began.
func (w *World) health(rack string, held time.Time) cellHealth {
	var h cellHealth
	until := w.now
	if !held.IsZero() {
		until = held
	}
	for name := range w.master.state.Machines {
		m := w.named(name)
		switch {
		case rack != "" && m.rack() != rack:
			continue
		case w.responds(name):
			h.up++
			h.most++
			continue
		case w.mayBeDead(name):
			if !w.dying(name) { // nobody knows
				h.mayDown++
				h.most++
			}
			continue
		}
		h.mayDown++
		h.most++
		since, given := w.oracle.losses.since[name]
		if !given || !w.oracle.jumped.After(since.Add(-time.Minute)) && until.Before(since.Add(lostLately)) {
			h.down++
		} else if !w.oracle.jumped.After(since.Add(-time.Minute)) {
			h.mayDown--
			h.most--
		}
	}
	return h
}

// responds reports whether a machine has reported to the master within the last ten seconds.
func (w *World) responds(machine string) bool {
	m := w.master
	return m.reported[machine] != nil && w.now.Sub(m.reportedAt[machine]) < silentAfter
}

// mayBeDead reports whether somebody has said, or says, that a machine is gone.
func (w *World) mayBeDead(machine string) bool {
	if r := w.master.state.Machines[machine]; r == nil || r.Forgotten != nil {
		return true
	}
	return slices.ContainsFunc(w.inForce(), func(o schema.Machine) bool { return o.Gone && speaksOf(&o, w.named(machine)) })
}

// dying reports whether that counts for sure: it was silent for long when it was said,
// and has been since.
func (w *World) dying(machine string) bool {
	if r := w.master.state.Machines[machine]; r == nil || r.Forgotten != nil {
		return true
	}
	since, known := w.oracle.gone[machine]
	return known && !w.master.state.Machines[machine].Spoke && w.now.Sub(since) > spokenWithin && w.now.Sub(w.oracle.reported[machine]) > w.now.Sub(since)
}

// checkShare: nothing that is silent is rescheduled while more machines are silent than
// may be at once: of the cell, or of the machine's rack.
func (w *World) checkShare(task schema.TaskName, machine string) {
	if w.mayBeDead(machine) {
		return
	}
	for _, part := range []string{"", w.named(machine).rack()} {
		if h := w.health(part, time.Time{}); h.over() {
			w.violate("task %s is rescheduled, and %d of %d machines are silent%s: %d%% may be at once", task, h.down, h.most, inRack(part), lostPercent)
		}
	}
}

func inRack(rack string) string {
	if rack == "" {
		return ""
	}
	return " in rack " + rack
}

// load takes over what a new master has loaded: what the one before has decided of it
// is not known any more. A store that was put back may have a machine given up that had
// returned since: from the time that is stored, which is all that the master knows. That is by
// the clock of its host, which is ahead.
func (l *losses) load(s *model.State, now time.Time, ahead time.Duration) {
	held := map[string]time.Time{}
	for rack, since := range heldParts(s) {
		held[rack] = cmp.Or(l.held[rack], since.Add(-ahead))
		if held[rack].After(now) {
			held[rack] = now
		}
	}
	l.held = held
	for name, r := range s.Machines {
		lost := r.LostSince.Add(-ahead)
		if since, ok := l.since[name]; !r.LostSince.IsZero() && lost.Before(now) && (!ok || lost.Before(since)) {
			l.since[name] = lost
		}
	}
	l.giveUp(s, now)
}

// giveUp takes down since when machines are given up.
func (l *losses) giveUp(s *model.State, now time.Time) {
	for name, r := range s.Machines {
		if _, ok := l.since[name]; r.LostSince.IsZero() {
			delete(l.since, name)
		} else if !ok {
			l.since[name] = now
		}
	}
	maps.DeleteFunc(l.since, func(name string, _ time.Time) bool { return s.Machines[name] == nil })
}

// heldParts returns since when parts of the cell are held, as is stored: "" is all.
func heldParts(s *model.State) map[string]time.Time {
	out := maps.Clone(s.Loss.HeldDomains)
	if out == nil {
		out = map[string]time.Time{}
	}
	if !s.Loss.Held.IsZero() {
		out[""] = s.Loss.Held
	}
	return out
}

// checkShares: that tasks are left where they are since too many machines are silent
// begins when that is so, and goes on, over masters, until enough of them are back or
// were declared gone.
func (w *World) checkShares() {
	o, now := &w.oracle.losses, map[string]time.Time{}
	for rack := range heldParts(w.master.state) {
		if since, ok := o.held[rack]; ok {
			now[rack] = since
		} else if h := w.health(rack, time.Time{}); !h.mayBeOver() {
			w.violate("tasks are left where they are%s, and %d of %d machines are silent: %d%% may be at once", inRack(rack), h.mayDown, h.most, lostPercent)
		} else {
			now[rack] = w.now
		}
	}
	for rack, since := range o.held {
		if _, ok := now[rack]; ok {
			continue
		}
		if h := w.health(rack, since); h.over() {
			w.violate("tasks are not left where they are any more%s, and %d of %d machines are silent: %d%% may be at once", inRack(rack), h.down, h.most, lostPercent)
		}
	}
	o.held = now
	o.giveUp(w.master.state, w.now)
}
