package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// progress is how far a job's tasks have come with its admitted data.
type progress struct {
	old     int    // run other data
	healthy int    // run the data, and well for long enough
	waited  int    // are to run it, and are waited for
	pending int    // have no place, for longer than is waited for
	failing string // says which task has failed with it and why, "" if none has
	well    map[int]bool
}

// progressOf looks at the tasks of a job.
func (s *step) progressOf(name schema.JobName, r *schema.JobRecord, want *schema.Job) progress {
	p := progress{well: map[int]bool{}}
	for _, t := range s.tasks(name) {
		if !s.wants(want, &t) || t.Done != nil {
			continue
		}
		newest := t.Data == r.Admitted
		var said model.ReportedTask
		if t.Machine != "" {
			said = s.in.Observed.Task(t.Machine, name.Task(t.Index), t.Generation)
		}
		switch {
		case t.Machine == "" && s.holdsUp(t, r.Admitted):
			p.waited++
		case t.Machine == "":
			p.pending++
		case !newest:
			p.old++
		case t.Stop == nil && s.isUp(t.Machine) && s.healthy(said, want):
			p.healthy++
			p.well[t.Index] = true
		default:
			p.waited++
		}
		if newest && p.failing == "" && r.Rollout != nil && t.Generation > r.Rollout.After {
			if why := failure(&t, said.TaskStatus); why != "" {
				p.failing = fmt.Sprintf("%s %s", name.Task(t.Index).Short(), why)
			}
		}
	}
	return p
}

// failure says how a generation shows that its data does not work, "" if it does
// not: it has used up its restarts, or could not be started, and not for the first
// time; it is restarted again and again; or its health check fails beyond what that
// allows after a start. What the cell did to it, one crash, and what one machine
// could not start, as when its disk fails, are no failures.
func failure(t *schema.TaskRecord, said *schema.TaskStatus) string {
	if t.Machine == "" {
		if n := len(t.Causes); n > 0 && t.Causes[n-1].Generation == t.Generation {
			if c := t.Causes[n-1]; c.Kind == schema.CauseFailed || c.Kind == schema.CauseStartFailed && t.Failures >= schema.CrashLoop {
				return c.String()
			}
		}
		return ""
	}
	switch {
	case said == nil || t.Stop != nil:
	case said.State == schema.Running && said.Health == schema.Unhealthy:
		return model.Saw("is unhealthy: its health check fails", said)
	case schema.Crashes(said.Exits) >= schema.CrashLoop:
		return fmt.Sprintf("ended %s: %s", schema.Times(schema.Crashes(said.Exits)), lastCrash(said.Exits))
	}
	return ""
}

// lastCrash returns the last exit that is the task's own; there is one.
func lastCrash(exits []schema.Exit) schema.Exit {
	own := slices.DeleteFunc(slices.Clone(exits), func(e schema.Exit) bool { return e.Blameless })
	return own[len(own)-1]
}

// judge settles what has become of a job's rollout: it is done, passes its
// canary, makes progress, or has failed.
func (s *step) judge(name schema.JobName) {
	was := s.job(name)
	if was == nil || was.Admitted == "" || s.frozen(name) {
		return
	}
	want := s.dataOf(was.Admitted)
	if !rolls(want) || was.Rollout == nil && was.Good == was.Admitted {
		return
	}
	r := *was
	if r.Rollout == nil { // of a version that kept none
		r.Rollout = &schema.Rollout{After: s.base.Counter, Since: r.Since}
	} else {
		copied := *r.Rollout
		r.Rollout = &copied
	}
	p := s.progressOf(name, &r, want)
	if want.Update.ProgressSeconds > 0 && p.healthy > r.Rollout.Healthy {
		r.Rollout.Healthy, r.Rollout.Progress = p.healthy, s.now
	}
	switch {
	case s.passCanary(name, &r, want, &p):
	case p.old == 0 && p.waited == 0 && (p.healthy > 0 || want.Tasks == 0 && want.Kind != schema.System):
		s.rolledOut(name, &r)
	case r.Rollout.Failed != "" || !s.protects(&r, &p):
	case p.failing != "":
		s.failRollout(name, &r, want, p.failing)
	default:
		s.keepPace(name, &r, want, &p)
	}
	if intent.Differ(&r, was) {
		s.setJob(name, &r)
	}
}

// protects reports whether anything is to be kept from data that fails: older
// data that runs, or ran well. Otherwise there is but to go on trying.
func (s *step) protects(r *schema.JobRecord, p *progress) bool {
	return p.old > 0 || r.Good != "" && r.Good != r.Admitted
}

// rolledOut takes down that all tasks run the admitted data, and well.
func (s *step) rolledOut(name schema.JobName, r *schema.JobRecord) {
	if r.Rollout.Returned != "" { // what failed is not to be forgotten
		return
	}
	if u := s.dataOf(r.Admitted).Update; r.Good != "" && (u.Canary != nil || u.ProgressSeconds > 0 || u.OnFailure != "") {
		s.rolloutEvent(name, "rollout complete")
	}
	if good := s.dataOf(r.Good); good != nil && len(r.Proven) == 0 { // of a release that did not remember
		r.Proven = proven(nil, good, true)
	}
	r.Proven = proven(r.Proven, s.dataOf(r.Admitted), true)
	r.Good, r.Rollout = r.Admitted, nil
}

// passCanary brings a job forward whose newest version has to pass a canary, and
// reports whether that is all that there is to say of it now.
func (s *step) passCanary(name schema.JobName, r *schema.JobRecord, want *schema.Job, p *progress) bool {
	canary := s.canaryOf(r, want)
	if canary == nil || r.Rollout.Failed != "" {
		return false
	}
	well, tasks := s.canaryTasks(name, want, p)
	switch {
	case tasks == 0 || well < tasks || p.failing != "":
		return false
	case r.Rollout.Canary.IsZero():
		r.Rollout.Canary = s.now
		next := "promoted already"
		if !r.Rollout.Promoted {
			next = WaitsFor(name, canary)
		}
		s.rolloutEvent(name, fmt.Sprintf("canary %d of %d healthy: %s", tasks, tasks, next))
	}
	over := r.Rollout.Canary.Add(time.Duration(canary.WaitSeconds) * time.Second)
	if canary.Promote == schema.PromoteAuto {
		s.wake(over)
	}
	if r.Rollout.Promoted || canary.Promote == schema.PromoteAuto && !s.now.Before(over) {
		r.Rollout.Passed, r.Rollout.Progress = true, s.now
		s.rolloutEvent(name, fmt.Sprintf("goes on after the canary of %d: %s", tasks, passedBy(r.Rollout)))
		if p.old > 0 {
			s.keepPace(name, r, want, p)
		}
		return p.old > 0
	}
	return true
}

// canaryTasks returns how many tasks the canary has, and how many of them are healthy.
func (s *step) canaryTasks(name schema.JobName, want *schema.Job, p *progress) (well, n int) {
	if s.job(name).Rollout == nil {
		return 0, 0
	}
	only := s.share(name, want).only
	for index := range only {
		if p.well[index] {
			well++
		}
	}
	return well, len(only)
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
	return "it was healthy for the time of its wait"
}

// keepPace fails a rollout of which no further task has got healthy within the
// policy's time. The wait for a healthy canary does not count, and neither does
// that for the hour of a disruption budget.
func (s *step) keepPace(name schema.JobName, r *schema.JobRecord, want *schema.Job, p *progress) {
	within := time.Duration(want.Update.ProgressSeconds) * time.Second
	if within == 0 || s.canaryOf(r, want) != nil && !r.Rollout.Canary.IsZero() {
		return
	}
	since := r.Rollout.Since
	if r.Rollout.Progress.After(since) {
		since = r.Rollout.Progress
	}
	switch until := since.Add(within); {
	case s.now.Before(until):
		s.wake(until)
	case p.waited == 0 && p.old > 0 && spentAfter(r, want, since):
		r.Rollout.Progress = s.now
		s.wake(s.now.Add(within))
	default:
		s.failRollout(name, r, want, fmt.Sprintf("no further task got healthy within %d s", want.Update.ProgressSeconds))
	}
}

// spentAfter reports whether the hour of a disruption budget may have held a job
// back after a time.
func spentAfter(r *schema.JobRecord, want *schema.Job, t time.Time) bool {
	return want.Disruption != nil && want.Disruption.PerHour > 0 &&
		slices.ContainsFunc(r.Disrupted, func(d schema.Disrupted) bool { return d.At.Add(budgetSpan).After(t) })
}

// failRollout ends a rollout: the tasks that it has not reached keep their data,
// and where the policy says so the others get that which was healthy last.
func (s *step) failRollout(name schema.JobName, r *schema.JobRecord, want *schema.Job, why string) {
	r.Rollout.Failed, r.Rollout.FailedAt = why, s.now
	r.Proven = proven(r.Proven, want, false)
	next := "paused"
	if want.Update.OnFailure == schema.Return {
		next = "paused: there is no earlier version that was healthy"
		if r.Good != "" && r.Good != r.Admitted && s.dataOf(r.Good) != nil {
			next, r.Rollout.Returned = "returns to the last healthy version", r.Admitted
		}
	}
	s.event(schema.Event{
		Kind: schema.EventRollout, Job: name.Short(), Commit: s.base.Head.Commit, Cause: schema.CauseFailed, Message: fmt.Sprintf("failed: %s; %s", why, next),
	})
}

func (s *step) rolloutEvent(name schema.JobName, message string) {
	s.event(schema.Event{Kind: schema.EventRollout, Job: name.Short(), Message: message})
}
