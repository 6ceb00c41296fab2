package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// judge changes tasks in place where that is enough, and updates rollouts by the state of
// the jobs' tasks.
type judge struct {
	pass
	cell   *snapshot.Cell
	judged map[schema.JobName]judged
}

// judged is what a verdict on a rollout was of.
type judged struct {
	record  *schema.JobRecord
	changes int // of the job's tasks
}

// settle changes in place what can be, and says what has become of the rollouts then.
func (s *judge) settle(names []schema.JobName) {
	for _, name := range names {
		s.changeInPlace(name)
		s.judge(name)
	}
}

// changeInPlace gives the job's running tasks that can go on with the admitted
// data as they are that data, and with it, say, its priority.
func (s *judge) changeInPlace(job schema.JobName) {
	digest := s.Job(job).Admitted
	if digest == "" || s.Frozen(job) {
		return
	}
	want := s.Admitted(job)
	for _, t := range s.Tasks(job) {
		if t.Machine != "" && t.Stop == nil && t.Data != digest && s.Wants(want, &t) && s.cell.InPlace(t.Data, want, snapshot.On{Task: job.Task(t.Index), Machine: t.Machine}) {
			t.Data = digest
			s.Set(job, t)
		}
	}
}

// judge settles what has become of a job's rollout: it is done, passes its
// canary, makes progress, or has failed. It has been, if the job and its tasks are as
// they were when it was judged last in this step.
func (s *judge) judge(name schema.JobName) {
	if now := (judged{s.Job(name), s.Changes(name)}); s.judged[name] != now {
		s.decide(name)
		s.judged[name] = judged{s.Job(name), now.changes}
	}
}

func (s *judge) decide(name schema.JobName) {
	was := s.Job(name)
	if was == nil || was.Admitted == "" || s.Frozen(name) {
		return
	}
	want := s.Admitted(name)
	if !facts.Rolls(want) || was.Rollout == nil && was.Good == was.Admitted {
		return
	}
	r := *was
	if r.Rollout == nil { // of a version that kept none
		r.Rollout = &schema.Rollout{After: s.Base.Counter, Since: r.Since}
	} else {
		copied := *r.Rollout
		r.Rollout = &copied
	}
	p, until := s.Progress(name, &r, want)
	s.book(name, until)
	if want.Update.ProgressDeadline() > 0 && p.Healthy > r.Rollout.Healthy {
		r.Rollout.Healthy, r.Rollout.Progress = p.Healthy, s.Now
	}
	switch {
	case s.passCanary(name, &r, want, &p):
	case p.Old == 0 && p.Waited == 0 && (p.Healthy > 0 || want.Tasks == 0 && want.Kind != schema.System):
		s.rolledOut(name, &r)
	case r.Rollout.Failed != "" || !facts.Protects(&r, &p):
	case p.Failing != "":
		s.failRollout(name, &r, want, p.Failing)
	default:
		s.keepPace(name, &r, want, &p)
	}
	if intent.Differ(&r, was) {
		s.SetJob(name, &r)
	}
}

// rolledOut takes down that all tasks run the admitted data, and well.
func (s *judge) rolledOut(name schema.JobName, r *schema.JobRecord) {
	if r.Rollout.Returned != "" { // what failed is not to be forgotten
		return
	}
	if u := s.Data(r.Admitted).Update; r.Good != "" && (u.Canary != nil || u.ProgressDeadline() > 0 || u.OnFailure != "") {
		s.rolloutEvent(name, "rollout complete")
	}
	if good := s.Data(r.Good); good != nil && len(r.Proven) == 0 { // of a release that did not remember
		r.Proven = proven(nil, good, true)
	}
	r.Proven = proven(r.Proven, s.Data(r.Admitted), true)
	r.Good, r.Rollout = r.Admitted, nil
}

// passCanary brings a job forward whose newest version has to pass a canary, and
// reports whether that is all that there is to say of it now.
func (s *judge) passCanary(name schema.JobName, r *schema.JobRecord, want *schema.Job, p *facts.Progress) bool {
	canary := s.Canary(r, want)
	if canary == nil || r.Rollout.Failed != "" {
		return false
	}
	well, tasks := s.CanaryTasks(name, want, p)
	if tasks == 0 || well < tasks || p.Failing != "" {
		s.stopCanary(name, r, want, p)
		return false
	}
	if stopped := r.Rollout.CanaryStopped; !stopped.IsZero() {
		r.Rollout.Canary, r.Rollout.CanaryStopped, r.Rollout.Progress = r.Rollout.Canary.Add(s.Now.Sub(stopped)), time.Time{}, s.Now
	}
	if r.Rollout.Canary.IsZero() {
		r.Rollout.Canary = s.Now
		next := "promoted already"
		if !r.Rollout.Promoted {
			next = WaitsFor(name, canary)
		}
		s.rolloutEvent(name, fmt.Sprintf("canary %d of %d healthy: %s", tasks, tasks, next))
	}
	over := r.Rollout.Canary.Add(time.Duration(canary.WaitSeconds) * time.Second)
	if canary.Promote == schema.PromoteAuto {
		s.book(name, s.At(over))
	}
	if r.Rollout.Promoted || canary.Promote == schema.PromoteAuto && !s.Now.Before(over) {
		r.Rollout.Passed, r.Rollout.Progress = true, s.Now
		s.rolloutEvent(name, fmt.Sprintf("continues after the canary of %d: %s", tasks, passedBy(r.Rollout)))
		if p.Old > 0 {
			s.keepPace(name, r, want, p)
		}
		return p.Old > 0
	}
	return true
}

// stopCanary takes down that not all tasks of a canary are healthy, which have to be for all of its wait: that begins anew
// with what fails by itself, and stands still while the cell keeps a task from running, or does not know of it yet.
func (s *judge) stopCanary(name schema.JobName, r *schema.JobRecord, want *schema.Job, p *facts.Progress) {
	switch {
	case r.Rollout.Canary.IsZero():
	case s.CanaryIsIll(name, want, p):
		r.Rollout.Canary, r.Rollout.CanaryStopped, r.Rollout.Progress = time.Time{}, time.Time{}, s.Now
	case r.Rollout.CanaryStopped.IsZero():
		r.Rollout.CanaryStopped, r.Rollout.Progress = s.Now, s.Now
	}
}

// lookAgain has another step follow this one where it has stopped a task of a canary that was healthy:
// the wait of that stands still.
func (s *judge) lookAgain() {
	for _, chunk := range s.ChangedChunks() {
		r := s.Job(chunk.Job)
		if r == nil || r.Rollout == nil || r.Rollout.Canary.IsZero() || r.Admitted == "" || s.Frozen(chunk.Job) {
			continue
		}
		want := s.Admitted(chunk.Job)
		p, _ := s.Progress(chunk.Job, r, want)
		if well, tasks := s.CanaryTasks(chunk.Job, want, &p); well < tasks {
			s.another()
			return
		}
	}
}

// WaitsFor says what a canary that is healthy waits for.
func WaitsFor(name schema.JobName, c *schema.Canary) string {
	if c.Promote == schema.PromoteCommit {
		return fmt.Sprintf("waits for a commit with the trailer %s: %s", schema.PromoteTrailer, name.Short())
	}
	return fmt.Sprintf("waits %d s", c.WaitSeconds)
}

func passedBy(r *schema.Rollout) string {
	if r.Promoted {
		return "a commit says so"
	}
	return "it was healthy for the wait time of the canary"
}

// keepPace fails a rollout of which no further task has got healthy within the
// policy's time. The wait for a healthy canary does not count, and neither does
// that for the hour of a disruption budget.
func (s *judge) keepPace(name schema.JobName, r *schema.JobRecord, want *schema.Job, p *facts.Progress) {
	within := time.Duration(want.Update.ProgressDeadline()) * time.Second
	if within == 0 || s.Canary(r, want) != nil && !r.Rollout.Canary.IsZero() && r.Rollout.CanaryStopped.IsZero() {
		return
	}
	since := r.Rollout.Since
	if r.Rollout.Progress.After(since) {
		since = r.Rollout.Progress
	}
	switch until := since.Add(within); {
	case s.Now.Before(until):
		s.book(name, s.At(until))
	case p.Waited == 0 && p.Old > 0 && spentAfter(r, want, since):
		r.Rollout.Progress = s.Now
		s.book(name, s.In(within))
	default:
		s.failRollout(name, r, want, fmt.Sprintf("no further task became healthy within %d s", want.Update.ProgressDeadline()))
	}
}

// spentAfter reports whether the hour of a disruption budget may have held a job
// back after a time.
func spentAfter(r *schema.JobRecord, want *schema.Job, t time.Time) bool {
	return want.Disruption != nil && want.Disruption.PerHour > 0 &&
		slices.ContainsFunc(r.Disrupted, func(d schema.Disrupted) bool { return d.Until().After(t) })
}

// failRollout ends a rollout: the tasks that it has not reached keep their data,
// and where the policy says so the others get that which was healthy last.
func (s *judge) failRollout(name schema.JobName, r *schema.JobRecord, want *schema.Job, why string) {
	r.Rollout.Failed, r.Rollout.FailedAt = why, s.Now
	r.Proven = proven(r.Proven, want, false)
	next := "paused"
	if want.Update.OnFailure == schema.Return {
		next = "paused: there is no earlier version that was healthy"
		if r.Good != "" && r.Good != r.Admitted && s.Data(r.Good) != nil {
			next, r.Rollout.Returned = "returns to the last healthy version", r.Admitted
		}
	}
	s.Event(schema.Event{
		Kind: schema.EventRollout, Job: name.Short(), Commit: s.Base.Head.Commit, Cause: schema.CauseFailed, Message: fmt.Sprintf("failed: %s; %s", why, next),
	})
}

func (s *judge) rolloutEvent(name schema.JobName, message string) {
	s.Event(schema.Event{Kind: schema.EventRollout, Job: name.Short(), Message: message})
}

// proven puts what the tasks of a version run before what is known to work; with
// works false it is taken out.
func proven(known []schema.Digest, version *schema.Job, works bool) []schema.Digest {
	run := version.Task.RunDigest()
	out := slices.DeleteFunc(slices.Clone(known), func(d schema.Digest) bool { return d == run })
	if works {
		out = slices.Insert(out, 0, run)
	}
	return out[:min(len(out), schema.MaxProven)]
}
