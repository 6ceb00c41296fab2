package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/schema"
)

const (
	// wakeEvery is how many turns lie between two looks at whether a master
	// that has just decided is right about when it has to decide again.
	wakeEvery = 8
	// everLater stands for the time of a master that wants no step without news.
	everLater = time.Hour
	// searchAgain is after how long a master searches for places for tasks that go together, where it has put that
	// off: a step without a memo does not know of searches before.
	searchAgain = time.Second
	// longestBackoff is how long a task may have to wait for its next attempt,
	// however the clock was set: twice the longest back-off, five minutes.
	longestBackoff = 10 * time.Minute
)

// checkWake: a master that has nothing to do until it wakes up has nothing to do
// just before, though no news should come: in is what the step saw that has been
// stored. What has come due by then would still be, so one look suffices. A step
// without a memo looks at all there is.
func (w *World) checkWake(in control.Input) {
	m := w.master
	if w.turns%wakeEvery != 0 {
		return
	}
	sleeps := everLater
	if !m.last.Wake.IsZero() {
		sleeps = m.last.Wake.Sub(in.Now) - time.Millisecond
	}
	if sleeps <= 0 || sleeps < searchAgain && w.gathers() {
		return // it goes on at once, or searches again
	}
	in.State, in.Memo, in.Now = m.state, nil, w.clock.read(w.now.Add(sleeps))
	if out := control.Step(in); w.overdue(&out) {
		w.noteEvents(out.Events)
		w.violate("the master sleeps for %s, and has to write %s before", sleeps, out.Writes[0].Key)
	} else if len(m.last.Writes) == 0 && verdictOf(&out) != verdictOf(m.last) {
		w.violate("the master says of admission: %s: want %s", verdictOf(m.last), verdictOf(&out))
	}
}

// gathers reports whether tasks that go together wait for places.
func (w *World) gathers() bool {
	for task := range w.master.last.Why {
		if j := w.master.state.Jobs[task.JobName]; j != nil && j.Admitted != "" && w.master.state.Data[j.Admitted].Gathers() {
			return true
		}
	}
	return false
}

// overdue reports whether a step without a memo, for which there was no news, decides what the
// master should have decided before.
func (w *World) overdue(out *control.Output) bool {
	return len(out.Writes) > 0 && !onlyRebalances(out) && !w.takesOver(out)
}

// onlyRebalances reports whether a step does nothing but move tasks to where they are
// spread better. A job is looked at for that once in a minute; and whether a task would be
// better elsewhere depends on where it would be placed, which a step without a memo may
// decide otherwise among machines with room: what it takes for a typical ask of the cell is
// of now, and with a memo it is of some changes ago.
func onlyRebalances(out *control.Output) bool {
	return len(out.Events) > 0 && !slices.ContainsFunc(out.Events, func(e schema.Event) bool { return e.Cause != schema.CauseRebalance })
}

// takesOver reports whether a step takes over what a machine of a restored cell holds. A
// master that has combed it looks there no more, for what was removed since.
func (w *World) takesOver(out *control.Output) bool {
	return slices.ContainsFunc(out.Events, func(e schema.Event) bool {
		return e.Kind == schema.EventSchedule && w.survived(e.Generation)
	})
}

// checkWaits: no task that is wanted has to wait for longer than back-off lasts,
// once a master has decided.
func (w *World) checkWaits(now time.Time) {
	s := w.master.state
	if s.Recovering() {
		return // nothing is decided
	}
	for name, c := range s.Chunks {
		j := s.Jobs[name.Job]
		if j == nil || j.Admitted == "" || w.turns%wakeEvery != 0 {
			continue
		}
		for i := range c.Tasks {
			r := &c.Tasks[i]
			if left := r.NotBefore.Sub(now); r.Machine == "" && r.Done == nil && left > longestBackoff && w.wants(s.Data[j.Admitted], name.Job.Task(r.Index)) {
				w.violate("task %s has to wait for %s before it is tried again", name.Job.Task(r.Index), left)
			}
		}
	}
}

// verdictOf says in words what a step says of admission.
func verdictOf(out *control.Output) string {
	var words []string
	for _, name := range slices.SortedFunc(maps.Keys(out.Admission.Rejected), schema.JobName.Compare) {
		words = append(words, out.Admission.Rejected[name].Error())
	}
	for _, warning := range out.Admission.Warnings {
		words = append(words, warning.Diagnostic.Error())
	}
	return fmt.Sprintf("%q", words)
}
