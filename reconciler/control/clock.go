package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// joinedLately is how long ago a machine may have joined for that to matter still: it
// has reported since, or been silent for long.
const joinedLately = 10 * time.Minute

// SetForward returns what has the waits of a cell last as long as before, when the
// clock was set forward by so much in the life of its master: what is stored as a
// time since when something waits, or counts, is that much later by the new clock.
// Times of day that people have declared stay, and so do the back-offs of tasks,
// which end early. It is called before the step that sees the new time; what was
// stored since by the new clock is set right there, see past.
func SetForward(s *model.State, by time.Duration, now time.Time) ([]model.Write, []schema.Event) {
	later := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.Add(by)
	}
	var out []model.Write
	if !s.Loss.Empty() {
		loss := schema.LossRecord{Full: maps.Clone(s.Loss.Full), Held: later(s.Loss.Held), HeldDomains: maps.Clone(s.Loss.HeldDomains)}
		for _, times := range []map[string]time.Time{loss.Full, loss.HeldDomains} {
			for domain, t := range times {
				times[domain] = later(t)
			}
		}
		out = append(out, s.Document(model.KeyLoss, loss))
	}
	if !s.Moves.Empty() {
		var r schema.MovesRecord
		for _, d := range s.Moves.Moves {
			r.Moves = append(r.Moves, schema.Disrupted{At: later(d.At), Tasks: d.Tasks})
		}
		out = append(out, s.Document(model.KeyMoves, r))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Machines)) {
		r := *s.Machines[name]
		joined := later(r.Joined)
		if joined.After(now) {
			joined = now
		}
		if !r.LostSince.IsZero() || now.Sub(joined) < joinedLately {
			r.Joined, r.LostSince = joined, later(r.LostSince)
			out = append(out, s.Document(model.KeyMachine+name, r))
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.Jobs), schema.JobName.Compare) {
		if r := s.Jobs[name]; r.Rollout != nil || len(r.Disrupted) > 0 {
			out = append(out, s.Document(model.KeyJob+name.Short(), waitsFrom(r, later)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Suspensions)) {
		if x := *s.Suspensions[name]; !x.Until.IsZero() {
			x.Since, x.Until = later(x.Since), later(x.Until)
			out = append(out, s.Document(model.KeySuspend+name, x))
		}
	}
	return out, []schema.Event{{At: now, Kind: schema.EventMaster, Message: fmt.Sprintf("the clock was set forward by %s: timers keep the time that they had left", by.Round(time.Second))}}
}
