package reconciler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// stallThreshold is how late a master may be for its own Wake before it is taken that
// it did not listen.
const stallThreshold = 5 * time.Second

// OnResume says that the master is about to step at now, and that the step before
// wanted this one at wake at the latest (Output.Wake). One that is late was
// stopped, or waited for its store. What machines said meanwhile it has not heard,
// and that is no fault of theirs: none is given up for it, and each gets new
// tasks when it has spoken again.
//
// It returns by how much the clock was set forward since the step before, 0 if it
// was not, for SetForward.
func (o *Observed) OnResume(wake, now time.Time) time.Duration {
	leap := clockJump(o.awake, now)
	o.awake = now
	if wake.IsZero() || now.Sub(wake) <= stallThreshold {
		return leap
	}
	o.since, o.waitedBefore = now, o.waited
	quiet := now.Add(-silentAfter)
	for _, h := range o.machines {
		if h.at.Before(quiet) {
			h.at = quiet
		}
	}
	return leap
}

// waitedFrom is how long a write to the store must take for that to matter.
const waitedFrom = time.Second

// Waited says that the master has waited for its store from began to now, and has
// heard nobody meanwhile: no machine is given up for that time. Whether it is up
// then is not known.
func (o *Observed) Waited(began, now time.Time) {
	if waited := now.Sub(began); waited >= waitedFrom {
		o.waited += waited
	}
}

// leapFrom is by how much a clock must have been set forward for that to matter.
const leapFrom = time.Second

// joinedLately is how long ago a machine may have joined for that to matter still: it
// has reported since, or been silent for long.
const joinedLately = 10 * time.Minute

// clockJump returns by how much a clock was set forward between two readings, 0 if it
// was not: by how much more the time of day went on than the monotonic reading.
func clockJump(was, now time.Time) time.Duration {
	if leap := now.Round(0).Sub(was.Round(0)) - now.Sub(was); leap >= leapFrom {
		return leap
	}
	return 0
}

// SetForward returns what has the waits of a cell last as long as before, when the
// clock was set forward by so much in the life of its master: what is stored as a
// time since when something waits, or counts, is that much later by the new clock.
// Times of day that people have declared stay, and so do the back-offs of tasks,
// which end early. It is called before the step that sees the new time; what was
// stored since by the new clock is set right there, see past.
func SetForward(s *State, by time.Duration, now time.Time) ([]Write, []schema.Event) {
	later := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.Add(by)
	}
	var out []Write
	if !s.Loss.Empty() {
		loss := schema.LossRecord{Full: maps.Clone(s.Loss.Full), Held: later(s.Loss.Held), HeldDomains: maps.Clone(s.Loss.HeldDomains)}
		for _, times := range []map[string]time.Time{loss.Full, loss.HeldDomains} {
			for domain, t := range times {
				times[domain] = later(t)
			}
		}
		out = append(out, s.document(keyLoss, loss))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Machines)) {
		r := *s.Machines[name]
		joined := later(r.Joined)
		if joined.After(now) {
			joined = now
		}
		if !r.LostSince.IsZero() || now.Sub(joined) < joinedLately {
			r.Joined, r.LostSince = joined, later(r.LostSince)
			out = append(out, s.document(keyMachine+name, r))
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.Jobs), schema.JobName.Compare) {
		if r := s.Jobs[name]; r.Rollout != nil || len(r.Disrupted) > 0 {
			out = append(out, s.document(keyJob+name.Short(), waitsFrom(r, later)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Suspensions)) {
		if x := *s.Suspensions[name]; !x.Until.IsZero() {
			x.Since, x.Until = later(x.Since), later(x.Until)
			out = append(out, s.document(keySuspend+name, x))
		}
	}
	return out, []schema.Event{{At: now, Kind: schema.EventMaster, Message: fmt.Sprintf("the clock was set forward by %s: what waits goes on for as long as before", by.Round(time.Second))}}
}
