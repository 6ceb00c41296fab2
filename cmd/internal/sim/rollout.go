package sim

import (
	"cmp"
	"maps"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// rollout is data that a job with a canary was admitted with, as the world sees it.
type rollout struct {
	data     schema.Digest
	since    time.Time
	well     time.Time // when so many tasks as the canary has first worked with it
	promoted bool      // by a commit
}

// cautious gives a job the N-th of the canaries, or none.
func cautious(j schema.Job, n int) schema.Job {
	u := &j.Update
	switch n % 4 {
	case 0:
		u.Canary = &schema.Canary{Tasks: 1, WaitSeconds: 3, Promote: schema.PromoteAuto}
	case 1:
		u.MinHealthySeconds = 1
	case 2:
		u.Canary = &schema.Canary{Tasks: 1, Promote: schema.PromoteCommit}
		u.MinHealthySeconds, u.OnFailure, u.ProgressDeadlineSeconds = 2, schema.Return, 30
	case 3:
		u.Canary = &schema.Canary{Tasks: 2, WaitSeconds: 8, Promote: schema.PromoteAuto}
		u.MinHealthySeconds, u.OnFailure = 3, schema.Return
	}
	return j
}

// promote commits that the rollouts of a user's job, or of all that have a
// canary, go on.
func (w *World) promote(a Action) bool {
	user, _, t := w.repo.job(a.Job)
	w.Commit(maps.Clone(w.repo.packages))
	w.head.Promote = []string{user + "/" + t.name}
	if a.N%4 != 0 {
		w.head.Promote = nil
		for _, u := range users {
			w.head.Promote = append(w.head.Promote, u+"/api")
		}
	}
	w.past[len(w.past)-1] = w.head
	return true
}

// promoting takes down which data a commit promotes that is being adopted.
func (w *World) promoting() {
	for _, short := range w.head.Promote {
		name, err := schema.ParseJobName(cellName + "/" + short)
		t := w.oracle.rollouts[name]
		if r := w.master.state.Jobs[name]; err == nil && t != nil && r != nil && t.data == r.Admitted {
			t.promoted = true
		}
	}
}

// checkRollouts: until it has passed its canary, new version is given to no more tasks
// than that has; and data to which a job has said goodbye to none. before is what
// was stored, and suspended are the jobs that were then.
func (w *World) checkRollouts(before snap, suspended map[schema.JobName]suspendedJob) {
	s := w.master.state
	for name := range w.oracle.rollouts {
		if s.Jobs[name] == nil {
			delete(w.oracle.rollouts, name)
			delete(w.oracle.proven, name)
			delete(w.oracle.returned, name)
		}
	}
	for name, r := range s.Jobs {
		want := w.oracle.data[r.Admitted]
		if want == nil || want.Kind != schema.Service {
			continue
		}
		t := w.oracle.rollouts[name]
		if t == nil || t.data != r.Admitted {
			t = &rollout{data: r.Admitted, since: w.now}
			w.oracle.rollouts[name] = t
		}
		w.checkRetried(name, r)
		if r.Rollout != nil && r.Rollout.Returned != "" {
			_, held := suspended[name]
			w.checkReturned(name, r, before, held)
		}
		if want.Update.Canary != nil && !w.oracle.proven[name][command(want)] {
			w.checkCanary(name, want, t, before)
		}
		w.prove(name, r)
	}
}

// prove takes down which commands of a job have worked in all its tasks, and have not
// failed since: these need no canary.
func (w *World) prove(name schema.JobName, r *schema.JobRecord) {
	known := w.oracle.proven[name]
	if known == nil {
		known = map[string]bool{}
		w.oracle.proven[name] = known
	}
	switch {
	case r.Good == r.Admitted && r.Rollout == nil:
		known[command(w.oracle.data[r.Admitted])] = true
	case r.Rollout != nil && r.Rollout.Failed != "":
		if failed := w.oracle.data[cmp.Or(r.Rollout.Returned, r.Admitted)]; failed != nil {
			delete(known, command(failed))
		}
	}
}

// checkCanary counts the tasks that a step gave data to which has not passed its
// canary. What runs by the same command keeps its process, and does not count.
func (w *World) checkCanary(name schema.JobName, want *schema.Job, t *rollout, before snap) {
	base := w.oracle.data[w.master.state.Jobs[name].Good]
	if base == nil || command(base) == command(want) || base.Priority > want.Priority || base.AllocSet != want.AllocSet {
		return // nothing that others could be left with
	}
	had, has, works, all := 0, 0, 0, 0
	w.each(name, func(r *schema.TaskRecord) {
		if r.Index >= want.Tasks {
			return
		}
		all++
		was := before.record(name.Task(r.Index))
		if was != nil && w.oracle.data[was.Data] != nil && command(w.oracle.data[was.Data]) == command(want) || w.oracle.took[name.Task(r.Index)] == r.Generation {
			had++
		}
		if r.Data == t.data {
			has++
			if w.works(r) {
				works++
			}
		}
	})
	canary := want.Update.Canary
	if t.well.IsZero() && works >= min(canary.Tasks, all) {
		t.well = w.now
	}
	if has <= max(canary.Tasks, had) || t.promoted {
		return
	}
	waits := time.Duration(canary.WaitSeconds) * time.Second
	passed := canary.Promote == schema.PromoteAuto && !t.well.IsZero() && w.now.Sub(t.well) >= waits
	if !passed && w.oracle.unseen.at.Before(t.since) {
		w.violate("%d tasks of %s have new version, which has not passed its canary of %d", has, name, canary.Tasks)
	}
}

// returned is data that has failed, and from which a job has returned.
type returned struct {
	data schema.Digest
	left bool // the job has been admitted with other data since
}

// checkRetried: data from which a job has returned is not tried again until a commit says
// something else of the job; what holds the job's removal, and a suspension, say nothing.
func (w *World) checkRetried(name schema.JobName, r *schema.JobRecord) {
	if r.Rollout != nil && r.Rollout.Returned != "" {
		if was := w.oracle.returned[name]; was == nil || was.data != r.Rollout.Returned {
			w.oracle.returned[name] = &returned{data: r.Rollout.Returned}
		}
	}
	was := w.oracle.returned[name]
	switch {
	case was == nil:
	case r.Admitted != was.data:
		was.left = true
	case was.left:
		w.violate("job %s is given data again that has failed, and no commit has said anything else of it since", name)
	}
}

// forgetReturned has what is committed otherwise now count as new.
func (o *oracle) forgetReturned() {
	maps.DeleteFunc(o.returned, func(name schema.JobName, x *returned) bool {
		declared := o.declared(name)
		return declared == nil || o.data[x.data] == nil || schema.DigestOf(declared) != x.data
	})
}

// checkReturned: a job that returns to its last healthy version gives nobody the
// other any more. But a suspension stops that rollout, too, where it is: a task of
// a suspended job comes back with the data that it had, also when it had been asked
// to stop for other data before. None gets what has failed that had not.
func (w *World) checkReturned(name schema.JobName, r *schema.JobRecord, before snap, suspended bool) {
	if r.Admitted == r.Rollout.Returned {
		return // that is admitted in the next step
	}
	if r.Admitted != r.Good {
		w.violate("job %s returns to data %s, and what was healthy last is %s", name, r.Admitted, r.Good)
	}
	w.each(name, func(x *schema.TaskRecord) {
		was := before.record(name.Task(x.Index))
		given := x.Machine != "" && (was == nil || was.Generation != x.Generation)
		healed := suspended && was != nil && was.Data == x.Data
		if x.Data == r.Rollout.Returned && given && !healed {
			w.violate("task %s is given data that has failed, and its job has returned to what was healthy last", name.Task(x.Index))
		}
	})
}

// each calls f for the record of each task of a job.
func (w *World) each(job schema.JobName, f func(*schema.TaskRecord)) {
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			if name.Job == job {
				f(&c.Tasks[i])
			}
		}
	}
}

func command(j *schema.Job) string { return strings.Join(j.Task.Process.Command, " ") }
