package control

import (
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// A job of kind Service or System that has once been healthy with some data has
// a base. While newer version has not passed its canary, and when it has failed,
// only some of the tasks have it: what is placed beyond them gets the base, so
// that the rest serves whatever happens to it.

// rolls reports whether rollouts of a job are followed as a whole.
func rolls(job *schema.Job) bool { return job.Kind == schema.Service || job.Kind == schema.System }

// beginRollout begins the rollout of data that a job has got just now. Where it
// is that to which the job returns, what has failed stays in the record.
func (s *step) beginRollout(r *schema.JobRecord, data *schema.Job, returns bool) {
	was := r.Rollout
	if r.Rollout = nil; !rolls(data) {
		r.Good = ""
		return
	}
	r.Rollout = &schema.Rollout{After: s.counter, Since: s.now}
	if n := data.Update.ProgressSeconds; n > 0 {
		s.wake(s.now.Add(time.Duration(n) * time.Second))
	}
	if returns && was != nil {
		r.Rollout.Failed, r.Rollout.FailedAt, r.Rollout.Returned = was.Failed, was.FailedAt, was.Returned
		return
	}
	r.Rollout.Passed = slices.Contains(r.Proven, data.Task.RunDigest())
	r.Rollout.Promoted = slices.Contains(s.base.Head.Promote, r.Name.Short())
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

// canaryOf returns the canary that a job's newest version has yet to pass, nil if
// there is none: it has no base, or returns to it.
func (s *step) canaryOf(r *schema.JobRecord, want *schema.Job) *schema.Canary {
	if want.Update.Canary == nil || r.Rollout == nil || r.Rollout.Passed || r.Rollout.Returned != "" || !s.hasBase(r, want) {
		return nil
	}
	return want.Update.Canary
}

// hasBase reports whether there is the previous version that tasks of a job may be given,
// and run on with.
func (s *step) hasBase(r *schema.JobRecord, want *schema.Job) bool {
	if r.Good == "" || r.Good == r.Admitted {
		return false
	}
	base := s.dataOf(r.Good)
	if base == nil || base.Kind != want.Kind || base.AllocSet != want.AllocSet {
		return false
	}
	change, _ := intent.Diff(base, want)
	return change == intent.Restart // what applies in place would do so at once
}

// rolloutScope is which tasks of a job run, or are to run, what.
type rolloutScope struct {
	newest, base schema.Digest
	// only are the tasks that have the newest version, or are the canary's; nil if
	// all shall have it.
	only map[int]bool
}

// includes reports whether a task shall have the newest version.
func (sh *rolloutScope) includes(index int) bool { return sh.only == nil || sh.only[index] }

// of returns the data that a task without a machine is given.
func (sh *rolloutScope) of(index int) schema.Digest {
	if sh.includes(index) {
		return sh.newest
	}
	return sh.base
}

// noMore reports whether tasks with the data base take nothing that is not
// admitted where next is: quota, and whom they may preempt.
func noMore(base, next *schema.Job) bool {
	return base.Priority <= next.Priority && base.Priority.Band() == next.Priority.Band() &&
		base.Task.Resources.Fits(next.Task.Resources.Resources)
}

// share returns which tasks of a job shall have its admitted data now.
func (s *step) share(name schema.JobName, want *schema.Job) rolloutScope {
	r := s.job(name)
	sh := rolloutScope{newest: r.Admitted, base: r.Good}
	canary := s.canaryOf(r, want)
	failed := r.Rollout != nil && r.Rollout.Failed != "" && r.Rollout.Returned == "" && s.hasBase(r, want)
	if canary == nil && !failed {
		return sh
	}
	sh.only = map[int]bool{}
	if !noMore(s.dataOf(r.Good), want) {
		sh.base = r.Admitted
	}
	var moving, sick, well, kept, pending []int
	for _, t := range s.tasks(name) {
		switch {
		case !s.wants(want, &t) || t.Done != nil:
		case t.Data == r.Admitted:
			sh.only[t.Index] = true
		case onTheMove(&t) || t.Machine == "" && t.Data != "" && t.Data != r.Good: // it must change anyway
			moving = append(moving, t.Index)
		case t.Machine == "":
			pending = append(pending, t.Index)
		case t.Generation > r.Rollout.After: // it was given the base just now
			kept = append(kept, t.Index)
		case Works(s.in.Observed.Status(t.Machine, name.Task(t.Index), t.Generation)):
			well = append(well, t.Index)
		default:
			sick = append(sick, t.Index)
		}
	}
	if failed {
		return sh
	}
	for _, index := range slices.Concat(moving, sick, well, kept, pending) {
		if len(sh.only) < canary.Tasks {
			sh.only[index] = true
		}
	}
	return sh
}

// onTheMove reports whether a task was stopped for newer version and has not been
// placed since.
func onTheMove(t *schema.TaskRecord) bool {
	if t.Stop != nil || t.Machine != "" {
		return t.Stop != nil && t.Stop.Kind == schema.CauseUpdate
	}
	return len(t.Causes) > 0 && t.Causes[len(t.Causes)-1].Kind == schema.CauseUpdate
}
