package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// A suspended job is left as it is by commits, and by what the cell would do to
// it by choice: its admitted data stays, nothing of it is updated, removed or
// moved away. What fails or is lost is healed with the data that it had. While
// the whole cell is suspended no commit is adopted.
//
// In what is desired a suspended job has its admitted data: so it is charged for
// what it runs, and a removal of it is counted by the guards for as long as it
// waits.

// Suspend returns what suspends a job, or with schema.AllJobs the cell. One that
// is suspended already gets another reason, and its time begins again; it is
// suspended since when it was first. Since is not looked at. It errs with
// NotFoundError if the cell runs no such job.
func Suspend(s *model.State, desired *intent.Desired, x schema.Suspension, now time.Time) ([]model.Write, []schema.Event, error) {
	if err := suspendable(s, desired, x.Name); err != nil {
		return nil, nil, err
	}
	x.Since = now
	said := "suspended"
	if was := s.Suspensions[x.Name]; was != nil {
		x.Since, said = was.Since, "still suspended"
	}
	if !x.Until.IsZero() {
		said += " until " + x.Until.UTC().Format(time.RFC3339)
	}
	e := schema.Event{At: now, Kind: schema.EventSuspend, Job: jobOfSuspension(x.Name), Message: fmt.Sprintf("%s%s by %s: %s", theCell(x.Name), said, x.By, x.Reason), Input: &schema.EventInput{Suspend: &x}}
	return []model.Write{s.Document(model.KeySuspend+x.Name, x)}, []schema.Event{e}, nil
}

// Resume returns what ends the suspension of that name, and nothing if there is
// none. by is who asks for it. Those of single jobs outlast that of the cell. It
// errs with NotFoundError if the cell runs no such job.
func Resume(s *model.State, desired *intent.Desired, name, by string, now time.Time) ([]model.Write, []schema.Event, error) {
	was := s.Suspensions[name]
	if was == nil {
		return nil, nil, suspendable(s, desired, name)
	}
	e := schema.Event{At: now, Kind: schema.EventResume, Job: jobOfSuspension(name), Message: fmt.Sprintf("%sresumed by %s after %s; it was %s", theCell(name), by, now.Sub(was.Since).Round(time.Second), was), Input: &schema.EventInput{Resume: &schema.EventEnded{Name: name, By: by}}}
	return []model.Write{{Key: model.KeySuspend + name}}, []schema.Event{e}, nil
}

// theCell begins what is said of the cell's suspension: of a job's, the event
// has its name.
func theCell(name string) string {
	if name == schema.AllJobs {
		return "the cell: "
	}
	return ""
}

// jobOfSuspension returns the job that a suspension is of, "" for all.
func jobOfSuspension(name string) string {
	if name == schema.AllJobs {
		return ""
	}
	return name
}

// suspendable errs unless name is that of a job that runs, or AllJobs.
func suspendable(s *model.State, desired *intent.Desired, name string) error {
	if name == schema.AllJobs {
		return nil
	}
	job := s.JobName(name)
	hint := "muster status lists the jobs; all is every job of the cell"
	switch r := s.Jobs[job]; {
	case r != nil && r.Admitted != "":
		return nil
	case r != nil:
		return model.NotFound(fmt.Sprintf("job %q was removed, and its tasks are stopping", name), "a commit that declares it again brings it back")
	}
	if _, ok := desired.Jobs[job]; ok {
		return model.NotFound(fmt.Sprintf("job %q is not admitted: it has nothing to suspend", name), "muster why "+name+" shows why")
	}
	return model.NotFound(fmt.Sprintf("cell %s has no job %q", s.Cell, name), hint)
}

// asBefore returns what to ask for a task, of a suspended job with the data that
// the task had: in the middle of a rollout that is not always the admitted.
func asBefore(s *facts.Facts, a snapshot.Ask, t *schema.TaskRecord) snapshot.Ask {
	if t.Data == "" || t.Data == a.Data || !s.Frozen(a.Task.JobName) {
		return a
	}
	if had := s.Data(t.Data); had != nil && had.Kind == a.Job.Kind && had.AllocSet == a.Job.AllocSet {
		a.Job, a.Data = had, t.Data
	}
	return a
}

// endSuspensions ends those whose time is over. What they kept back is done by
// the next step. One that a clock began which was ahead lasts as long as was said,
// from now.
func endSuspensions(s pass) {
	for _, name := range slices.Sorted(maps.Keys(s.Base.Suspensions)) {
		x := s.Base.Suspensions[name]
		if early := x.Since.Sub(s.Now); early > 0 && !x.Until.IsZero() {
			right := *x
			right.Since, right.Until = s.Now, x.Until.Add(-early)
			s.Put(model.KeySuspend+name, &right)
			x = &right
		}
		switch {
		case x.Until.IsZero():
		case s.Now.Before(x.Until):
			s.bookCell(s.At(x.Until))
		default:
			s.Delete(model.KeySuspend + name)
			s.Event(schema.Event{Kind: schema.EventResume, Job: jobOfSuspension(name), Message: theCell(name) + "resumed, its duration is over; it was " + x.String()})
			s.another()
		}
	}
}
