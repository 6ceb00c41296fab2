package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// admissionMemo is a verdict that changed nothing, and what it was a function
// of.
type admissionMemo struct {
	desired *intent.Desired
	records uint64 // see model.State
	verdict quota.Admission
}

// admission admits jobs.
type admission struct {
	pass
	kept    **admissionMemo
	verdict quota.Admission
	// retained are the alloc sets that stay though they are not desired.
	retained map[schema.JobName][]string
}

// admit makes the desired jobs that the cell takes on its job records, and returns those
// that have got other data.
func (s *admission) admit() (changed []schema.JobName) {
	desired := s.Desired
	settled := s.decide()
	s.bookCell(s.At(s.verdict.Next))
	if settled {
		return nil
	}
	for _, name := range s.removed() {
		r := *s.Job(name)
		r.Admitted, r.Since = "", s.Now
		s.SetJob(name, &r)
		s.Event(schema.Event{Kind: schema.EventRemove, Job: name.Short(), Commit: s.Base.Head.Commit, Message: intent.Sentence("removed from the repository", s.Base.Head.Whose())})
	}
	records := s.Records()
	for _, name := range s.verdict.Order {
		d := desired.Jobs[name]
		if was := s.Job(name); was != nil && was.Rollout == nil && was.Admitted == d.Digest && was.Origin == d.Origin && sameCount(was.Count, d.Count) {
			continue // as of nearly all
		}
		if base, ok := records.InsteadOf(name, &d); ok {
			d = base
		}
		if s.admitJob(name, d, desired.Jobs[name].Digest) {
			changed = append(changed, name)
		}
	}
	s.remember()
	return changed
}

// removed returns the jobs that are admitted and neither desired nor kept, sorted.
func (s *admission) removed() (names []schema.JobName) {
	for name, r := range s.Base.Jobs {
		if r.Admitted == "" {
			continue
		}
		if _, ok := s.Desired.Jobs[name]; !ok && !s.keeps(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, schema.JobName.Compare)
	return names
}

// keeps reports whether a job that is not desired stays, as an alloc set does
// that is in use.
func (s *admission) keeps(name schema.JobName) bool {
	_, ok := s.retained[name]
	return ok
}

// admitJob makes data the one that a job runs: what is desired, whose digest is
// given, or what is run in its place. It reports whether that is news.
func (s *admission) admitJob(name schema.JobName, d intent.DesiredJob, desired schema.Digest) bool {
	was := s.Job(name)
	over := was != nil && was.Rollout != nil && was.Rollout.Returned != "" && was.Rollout.Returned != desired && d.By != intent.Held && d.By != intent.Suspended && !s.Frozen(name)
	same := was != nil && was.Admitted == d.Digest
	if same && was.Origin == d.Origin && sameCount(was.Count, d.Count) && !over {
		return false
	}
	r := &schema.JobRecord{Name: name, Admitted: d.Digest, Origin: d.Origin, Count: d.Count, Since: s.Now}
	if d.Digest == desired {
		r.Commit = s.Base.Head.Commit
	}
	if was != nil {
		r.Disrupted, r.Good, r.Proven, r.Rollout, r.Apart = was.Disrupted, was.Good, was.Proven, was.Rollout, was.Apart
	}
	if over {
		r.Rollout = nil // another commit has changed the job: what failed may be tried again
	}
	if same {
		r.Since, r.Commit = was.Since, was.Commit // only its place in the repository changed, or its count
	} else {
		s.beginRollout(r, was, d.Job, d.Digest != desired)
	}
	r.Whole, r.Asked = s.wholeSince(was, r, d.Job), askedSince(s.pass, was, r, d.Job)
	s.SetJob(name, r)
	if same {
		if before, now := d.Job.With(was.Count).Tasks, d.Job.With(d.Count).Tasks; before != now {
			s.Event(schema.Event{Kind: schema.EventUpdate, Job: name.Short(), Message: fmt.Sprintf("scaled from %d to %s", before, schema.Count(now, "task"))})
		}
		return true
	}
	s.AddData(d.Digest, d.Job)
	s.sayAdmitted(was, r, d)
	return true
}

func sameCount(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }

// sayAdmitted adds the event of a job that has got another version: whose commit that is of, and
// what it changes.
func (s *admission) sayAdmitted(was, r *schema.JobRecord, d intent.DesiredJob) {
	e := schema.Event{Kind: schema.EventSubmit, Job: r.Name.Short(), Commit: s.Base.Head.Commit}
	message, changes := "admitted at "+d.Origin.String(), ""
	if was != nil && was.Admitted != "" {
		e.Kind, changes = schema.EventUpdate, intent.ChangesOf(s.Data(was.Admitted), d.Job)
	}
	if was != nil && intent.GoesBack(r, s.Data(was.Admitted), d.Job) {
		message = intent.Sentence(intent.EarlierVersion, message)
	}
	if r.Rollout != nil && r.Rollout.Returned != "" {
		e.Message = intent.Sentence("returns to the last healthy version", changes)
	} else {
		e.Message = intent.Sentence(message, changes, s.Base.Head.Whose())
	}
	s.Event(e)
}

// decide finds the verdict on the desired jobs; settled says that it changes nothing.
func (s *admission) decide() (settled bool) {
	desired := s.Desired
	if m := *s.kept; m != nil && s.standing() && m.desired == desired && m.records == s.Base.Records &&
		(m.verdict.Next.IsZero() || s.Now.Before(m.verdict.Next)) {
		s.verdict = m.verdict
		return true
	}
	*s.kept = nil
	s.verdict, s.retained = quota.Question{State: s.Base, Desired: desired, Records: s.Records(), Now: s.Now}.Verdict()
	return false
}

// standing reports whether nothing that admission is a function of has changed of jobs since
// it was stored.
func (s *admission) standing() bool {
	return !slices.ContainsFunc(s.ChangedJobs(), func(name schema.JobName) bool {
		return model.StandingOf(s.Job(name)) != model.StandingOf(s.Base.Jobs[name])
	})
}

// remember keeps a verdict that changed nothing.
func (s *admission) remember() {
	if s.standing() {
		*s.kept = &admissionMemo{s.Desired, s.Base.Records, s.verdict}
	}
}

// beginRollout begins the rollout of data that a job has got just now, in place of before's; nil for none. Where it
// is that to which the job returns, what has failed stays in the record. Where its tasks run what they did, the rollout
// goes on: what changes in place, as a count, says nothing of whether they are well.
func (s *admission) beginRollout(r, before *schema.JobRecord, data *schema.Job, returns bool) {
	was := r.Rollout
	promoted := slices.Contains(s.Base.Head.Promote, r.Name.Short())
	if !returns && was != nil && was.Failed == "" && s.runsTheSame(before, data) {
		rollout := *was
		rollout.Promoted = rollout.Promoted || promoted
		r.Rollout = &rollout
		return
	}
	if r.Rollout = nil; !facts.Rolls(data) {
		r.Good = ""
		return
	}
	r.Rollout = &schema.Rollout{After: s.Generation(), Since: s.Now}
	if n := data.Update.ProgressDeadline(); n > 0 {
		s.book(r.Name, s.In(time.Duration(n)*time.Second))
	}
	if returns && was != nil {
		r.Rollout.Failed, r.Rollout.FailedAt, r.Rollout.Returned = was.Failed, was.FailedAt, was.Returned
		return
	}
	r.Rollout.Passed = slices.Contains(r.Proven, data.Task.RunDigest())
	r.Rollout.Promoted = promoted
}

// runsTheSame reports whether the tasks of a job run with other data what they do with that of its record.
func (s *admission) runsTheSame(r *schema.JobRecord, data *schema.Job) bool {
	is := s.Data(r.Admitted)
	return is != nil && is.Kind == data.Kind && is.AllocSet == data.AllocSet && is.Task.RunDigest() == data.Task.RunDigest()
}
