package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Next is what the cell does by itself at a time, though nothing happens before. Field names are
// stable.
type Next struct {
	At   time.Time `json:"at"`
	What string    `json:"what"` // in words
}

// appointment returns the first of what time alone brings as far as the state says it, nil if there is
// nothing. The master's own Wake does not say: it is a minute ahead at most while any task is pending.
func appointment(c *Cell) *Next {
	a := appointments{c: c}
	suspensions := c.state().Suspensions
	for _, name := range slices.Sorted(maps.Keys(suspensions)) {
		what := name
		if suspensions[name].All() {
			what = "all jobs"
		}
		a.meet(suspensions[name].Until, "the suspension of %s ends", what)
	}
	for _, name := range c.state().JobNames() {
		a.hourly(name)
		a.silences(name)
	}
	for _, m := range c.sorted {
		for _, generation := range slices.Sorted(maps.Keys(m.begun)) {
			if t := m.begun[generation]; t.checks && t.State == schema.Running {
				a.meet(t.next, "the health checks of %s on %s have their result", shortJob(t.Task.String()), m.name())
			}
		}
	}
	for i, s := 0, c.Status(); i < len(s.Machines); i++ {
		if d := s.Machines[i].Draining; d != nil && d.Left > 0 && d.AtDeadline == schema.DeadlineStop {
			a.meet(d.Deadline, "the drain of %s has its deadline and stops what is left", s.Machines[i].Name)
		}
	}
	return a.first
}

// appointments find the first of them.
type appointments struct {
	c     *Cell
	first *Next
}

// meet adds one; what is over is none.
func (a *appointments) meet(at time.Time, format string, args ...any) {
	if at.After(a.c.now) && (a.first == nil || at.Before(a.first.At)) {
		a.first = &Next{at.UTC(), fmt.Sprintf(format, args...)}
	}
}

// hourly adds when a job whose disruption budget is used up for an hour has some of it again.
func (a *appointments) hourly(name schema.JobName) {
	want := a.c.state().Runs(name)
	if want == nil || want.Disruption == nil || want.Disruption.PerHour == 0 {
		return
	}
	if spent, next := a.c.state().Jobs[name].Spent(a.c.now); spent >= want.Disruption.PerHour {
		a.meet(next, "the disruption budget of %s allows another stop", name.Short())
	}
}

// silences adds when tasks of a job that are on silent machines are given up.
func (a *appointments) silences(name schema.JobName) {
	state, now, observed := a.c.state(), a.c.now, a.c.master.Observed()
	want := state.Runs(name)
	if want == nil || want.NeverTwice() {
		return
	}
	for i := range state.Span(name) {
		chunk := state.Chunks[model.ChunkName{Job: name, Number: i}]
		for j := 0; chunk != nil && j < len(chunk.Tasks); j++ {
			r := state.Machines[chunk.Tasks[j].Machine]
			if r == nil {
				continue
			}
			if _, up := observed.UpUntil(r.Name, now); !up {
				a.meet(now.Add(want.After(observed.LostAfter)-observed.Silence(r, now)), "the tasks of %s on %s, which is silent, are given up", name.Short(), r.Name)
			}
		}
	}
}
