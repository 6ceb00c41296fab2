package quota

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Question is what is asked of admission.
type Question struct {
	State   *model.State
	Desired *intent.Desired
	Records intent.Records
	Now     time.Time
}

// Verdict returns the verdict on the desired jobs, and on the alloc sets that stay for
// those which it leaves as they are: these, with the jobs that run inside. It is what
// the master goes by, and what the check of a commit reports.
func (q Question) Verdict() (Admission, map[schema.JobName][]string) {
	in := sizedInput(q.State, *q.Desired, q.Now)
	if in.free() {
		in.state = q.State // which is not gathered to be counted
	} else {
		in.Admitted = q.State.AdmittedData()
	}
	retained := intent.RetainedSets(q.State, q.Desired, q.State.Runs)
	for {
		in.Desired = intent.WithReturned(q.State, intent.WithRetained(q.State, q.Desired, retained), q.Records)
		verdict := Admit(in)
		if len(retained) == 0 {
			return verdict, nil
		}
		decided := map[schema.JobName]bool{}
		for _, name := range verdict.Order {
			decided[name] = true
		}
		still := intent.RetainedSets(q.State, q.Desired, func(name schema.JobName) *schema.Job {
			if decided[name] {
				return q.Desired.Jobs[name].Job
			}
			return q.State.Runs(name)
		})
		if len(still) == len(retained) {
			return verdict, retained
		}
		retained = still // what goes makes room
	}
}

// AdmitInput returns what admission of desired depends on: all who call Admit
// have it from here, and so ask the same.
func AdmitInput(s *model.State, desired intent.Desired, now time.Time) Input {
	in := sizedInput(s, desired, now)
	in.Admitted = s.AdmittedData()
	return in
}

// sizedInput is AdmitInput without what is admitted.
func sizedInput(s *model.State, desired intent.Desired, now time.Time) Input {
	in := Input{Desired: desired, Records: s.Jobs, Now: now}
	if len(s.Machines) > 0 {
		in.Size = &CellSize{Machines: len(s.Machines)}
		for _, m := range s.Machines {
			in.Size.Capacity = in.Size.Capacity.Add(m.Capacity)
		}
	}
	return in
}

// Rejections returns an event for each job that is not admitted of a head which declares
// desired: by the verdict of the step that follows its adoption.
func Rejections(s *model.State, head *schema.Head, desired *intent.Desired, now time.Time) []schema.Event {
	next := *s
	next.Head = *head
	verdict, _ := Question{&next, desired, intent.Stored(&next), now}.Verdict()
	var out []schema.Event
	for _, name := range slices.SortedFunc(maps.Keys(verdict.Rejected), schema.JobName.Compare) {
		changes := ""
		if d := desired.Jobs[name]; len(d.Refused) == 0 { // else its names stand for nothing
			runs := s.Runs(name)
			if changes = intent.ChangesOf(runs, d.Job.With(d.Count)); changes == "" && runs != nil && verdict.Causes[name] == RejectedGang {
				continue // digests may be missing here, by which it would be known to be as it was
			}
		}
		out = append(out, schema.Event{At: now, Commit: head.Commit, Kind: schema.EventReject, Job: name.Short(), Message: intent.Sentence(verdict.Rejected[name].Error(), changes, head.Whose())})
	}
	return out
}
