package control

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// Where a job has come to be spread worse than it could be, as when a rack was lost
// and has returned, a running task is moved: one of a job at a time, within its
// disruption budget, where a machine has room on which it is better. How long that
// has been so follows from what is stored: since when its tasks are where they are,
// and the machine is there.

const (
	// unevenNext is for how long a task must have been where it was moved before
	// the next one is.
	unevenNext = time.Minute
	// movedInVain is for how long a task is left that was moved, and was placed
	// where it was no better, since others took the room.
	movedInVain = time.Hour
	// A job that is not even is looked at every so often, and then for so long: what can
	// change the answer is all over the cell. One that is even is looked at when its tasks
	// are others, or machines are.
	repairEvery = time.Minute
	repairLooks = 2 * time.Second
)

// repair moves tasks to where they are better for the spread of their jobs.
type repair struct {
	pass
	activity *activity
	moves    *moves
	uneven   uneven
}

// all looks at the jobs whose turn it is.
func (s *repair) all(active []schema.JobName) {
	if len(s.Up()) < 2 {
		return
	}
	for _, name := range active {
		if s.Job(name) != nil {
			s.repair(name)
		}
	}
}

// repair moves a task of a job to where it is better for its spread.
func (s *repair) repair(name schema.JobName) {
	want := s.Admitted(name)
	if want == nil || !mayBeUneven(want) || want.Tasks < 2 || neverRepaired(want) != "" {
		return
	}
	if s.uneven.cell.Even(name, want) {
		s.activity.keepEven(name)
		return
	}
	began := lookedAt(name, s.Now)
	if !s.Now.Before(began.Add(repairLooks)) {
		s.book(name, s.At(began.Add(repairEvery)))
		return
	}
	s.book(name, s.At(began.Add(repairLooks)))
	if why, until := s.uneven.stillMoves(name, s.Job(name)); why != "" { // that ends with a change of the job, or by itself
		s.book(name, until)
		return
	}
	s.activity.keep(name)
	u, ok, until := s.uneven.cell.Uneven(name, want)
	if s.book(name, until); !ok {
		return
	}
	why, until := s.uneven.waitsFor(name, &u)
	if s.book(name, until); why != "" {
		return
	}
	s.moves.move(name, *s.Task(name.Task(u.Index)), schema.Cause{Message: fmt.Sprintf("moves to %s: %s", u.Machine, &u), To: u.Machine})
}

// mayBeUneven reports whether the tasks of a job are spread. Those in allocs are
// where these are.
func mayBeUneven(want *schema.Job) bool {
	return want.Kind == schema.Service && want.AllocSet == "" && (want.Spread == nil || want.Spread.By != schema.NoSpread)
}

// neverRepaired says why no task of a job is moved for its spread, "" if some may be.
func neverRepaired(want *schema.Job) string {
	if want.Spread != nil && want.Spread.Repair != nil && !*want.Spread.Repair {
		return "spread.repair is false"
	}
	return neverMoved(want)
}

// neverMoved says why no task of a job is moved to make the cell better, "" if some may be.
func neverMoved(want *schema.Job) string {
	switch {
	case !want.Moved():
		return "rebalance is false"
	case want.Task.Sticky.Has():
		return "they are sticky"
	case want.NeverTwice():
		return "they must never run twice"
	case want.Gathers():
		return "they have places together"
	}
	return ""
}

// lookedAt returns when a job was last to be looked at: at a time within the minute
// that differs from job to job.
func lookedAt(name schema.JobName, now time.Time) time.Time {
	h := fnv.New32a()
	h.Write([]byte(name.String())) // never fails
	offset := time.Duration(h.Sum32()%uint32(repairEvery/time.Second)) * time.Second
	return now.Add(-offset).Truncate(repairEvery).Add(offset)
}

// uneven says what tasks wait for that would be better elsewhere.
type uneven struct {
	*facts.Facts
	cell   *snapshot.Cell
	bounds *moveBounds
}

// waitsFor says what a task waits for that would be better elsewhere, "" if it
// may move now.
func (s *uneven) waitsFor(name schema.JobName, u *snapshot.Uneven) (why string, until facts.Until) {
	r := s.Job(name)
	t := s.Task(name.Task(u.Index))
	switch {
	case s.Frozen(name):
		return "the job is " + s.Suspended.Of(name).String(), until
	case r.Rollout != nil || len(s.Asked[name]) > 0:
		return "a rollout is not complete", until
	}
	if why, until = s.bounds.refuse(1); why != "" {
		return why, until
	}
	if why, until = s.stillMoves(name, r); why != "" {
		return why, until
	}
	if recent := s.cell.JoinedRecently(); slices.Contains(recent, u.Machine) {
		for _, name := range recent { // another may do as well
			until = until.Or(s.At(s.settles(name)))
		}
		return fmt.Sprintf("machine %s joined recently: until %s", u.Machine, s.Say(s.settles(u.Machine))), until
	}
	if why := s.bounds.crowded(1); why != "" {
		return why, until
	}
	why, changes := s.Blocked(name, t)
	return why, until.Or(changes)
}

// settles returns when a machine has been there for long enough to have a running task
// moved to it.
func (s *uneven) settles(machine string) time.Time {
	return s.Base.Machines[machine].Joined.Add(snapshot.UnevenFor)
}

// stillMoves says which task of a job is not, or not for long enough, where it is.
func (s *uneven) stillMoves(name schema.JobName, r *schema.JobRecord) (why string, until facts.Until) {
	want := s.Admitted(name)
	tasks := s.Tasks(name)
	if len(tasks) != want.Tasks {
		return "not all of its tasks are placed", until
	}
	var last time.Time // of those that moved recently, when the youngest has stayed for long enough
	for i := range tasks {
		t := &tasks[i]
		short := name.Task(t.Index).Short()
		switch {
		case t.Machine == "":
			return short + " has no machine", until
		case t.Stop != nil:
			return short + " is stopping", until
		case !s.IsUp(t.Machine):
			return fmt.Sprintf("machine %s is silent", t.Machine), until
		case t.Data != r.Admitted:
			return "a rollout is not complete", until
		}
		stays := snapshot.UnevenFor
		if n := len(t.Causes); n > 0 && t.Causes[n-1].Kind == schema.CauseRebalance {
			if stays = unevenNext; s.inVain(t.Causes[n-1].Machine, t.Machine, snapshot.SpreadBy(want)) {
				stays = movedInVain
			}
		}
		settles := t.At.Add(stays)
		if !settles.After(last) {
			continue
		}
		waits, changes := s.Waits(settles, stays)
		if until = until.Or(changes); waits {
			last, why = settles, fmt.Sprintf("%s was placed less than %d min ago: until %s", short, int(stays.Minutes()), s.Say(settles))
		}
	}
	return why, until
}

// inVain reports whether a task that was moved from one machine to another is no
// better spread there.
func (s *uneven) inVain(from, to, attribute string) bool {
	if from == to || s.Base.Machines[from] == nil {
		return from == to
	}
	return len(s.Domains(attribute)) > 1 && s.DomainOf(from, attribute) == s.DomainOf(to, attribute)
}
