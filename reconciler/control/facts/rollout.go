package facts

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// A job of kind Service or System that has once been healthy with some data has
// a base. While a newer version has not passed its canary, and when it has failed,
// only some of the tasks have it: what is placed beyond them gets the base, so
// that the rest serves whatever happens to it.

// Rolls reports whether rollouts of a job are followed as a whole.
func Rolls(job *schema.Job) bool { return job.Kind == schema.Service || job.Kind == schema.System }

// Progress is how far a job's tasks have come with its admitted data.
type Progress struct {
	Old     int    // run other data
	Healthy int    // run the data, and well for long enough
	Waited  int    // are to run it, and are waited for
	Failing string // says which task has failed with it and why, "" if none has

	well []int // the healthy ones, sorted
	ill  []int // those that are not for a reason of their own: they crashed, or are unhealthy
}

// Progress looks at the tasks of a job, whose record may be about to change.
func (f *Facts) Progress(name schema.JobName, r *schema.JobRecord, want *schema.Job) (Progress, Until) {
	var p Progress
	var until Until
	tasks := f.Tasks(name)
	for i := range tasks {
		t := &tasks[i]
		if !f.Wants(want, t) || t.Done != nil {
			continue
		}
		newest := t.Data == r.Admitted
		var said model.ReportedTask
		if t.Machine != "" {
			said = f.Said(name, t)
		}
		var is bool
		var changes Until
		switch {
		case t.Machine == "":
			if is, changes = f.HoldsUp(t, r.Admitted); is {
				p.Waited++
			}
		case !newest:
			p.Old++
		case t.Stop != nil || !f.IsUp(t.Machine):
			p.Waited++
		default:
			if is, changes = f.Healthy(said, want); is {
				p.Healthy++
				p.well = append(p.well, t.Index)
			} else {
				p.Waited++
			}
		}
		if newest && !p.isWell(t.Index) && isIll(t, said.TaskStatus) {
			p.ill = append(p.ill, t.Index)
		}
		until = until.Or(changes)
		if newest && p.Failing == "" && r.Rollout != nil && t.Generation > r.Rollout.After {
			if why := failure(t, said.TaskStatus); why != "" {
				p.Failing = fmt.Sprintf("%s %s", name.Task(t.Index).Short(), why)
			}
		}
	}
	return p, until
}

func (p *Progress) isWell(index int) bool {
	_, is := slices.BinarySearch(p.well, index)
	return is
}

// isIll reports whether a task that is not healthy has itself to blame, and not the cell: said is what its machine
// reports of it, nil if it has not yet.
func isIll(t *schema.TaskRecord, said *schema.TaskStatus) bool {
	if t.Machine == "" {
		n := len(t.Causes)
		return n > 0 && (t.Causes[n-1].Kind == schema.CauseFailed || t.Causes[n-1].Kind == schema.CauseStartFailed)
	}
	return said != nil && (said.Health == schema.Unhealthy || said.Incarnation > 1)
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

// Canary returns the canary that a job's newest version has yet to pass, nil if
// there is none: it has no base, or returns to it.
func (f *Facts) Canary(r *schema.JobRecord, want *schema.Job) *schema.Canary {
	if want.Update.Canary == nil || r.Rollout == nil || r.Rollout.Passed || r.Rollout.Returned != "" || !f.HasBase(r, want) {
		return nil
	}
	return want.Update.Canary
}

// HasBase reports whether there is the previous version that tasks of a job may be given,
// and run on with.
func (f *Facts) HasBase(r *schema.JobRecord, want *schema.Job) bool {
	if r.Good == "" || r.Good == r.Admitted {
		return false
	}
	base := f.Data(r.Good)
	if base == nil || base.Kind != want.Kind || base.AllocSet != want.AllocSet {
		return false
	}
	change, _ := f.Diff(base, want)
	return change == intent.Restart // what applies in place would do so at once
}

// Scope is which tasks of a job run, or are to run, what.
type Scope struct {
	newest, base schema.Digest
	// Only are the tasks that have the newest version, or are the canary's; nil if
	// all shall have it.
	Only map[int]bool
}

// Includes reports whether a task shall have the newest version.
func (sh *Scope) Includes(index int) bool { return sh.Only == nil || sh.Only[index] }

// Of returns the data that a task without a machine is given.
func (sh *Scope) Of(index int) schema.Digest {
	if sh.Includes(index) {
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

// Scope returns which tasks of a job shall have its admitted data now.
func (f *Facts) Scope(name schema.JobName, want *schema.Job) Scope {
	r := f.Job(name)
	sh := Scope{newest: r.Admitted, base: r.Good}
	canary := f.Canary(r, want)
	failed := r.Rollout != nil && r.Rollout.Failed != "" && r.Rollout.Returned == "" && f.HasBase(r, want)
	if canary == nil && !failed {
		return sh
	}
	sh.Only = map[int]bool{}
	if !noMore(f.Data(r.Good), want) {
		sh.base = r.Admitted
	}
	var moving, sick, well, kept, pending []int
	for _, t := range f.Tasks(name) {
		switch {
		case !f.Wants(want, &t) || t.Done != nil:
		case t.Data == r.Admitted:
			sh.Only[t.Index] = true
		case onTheMove(&t) || t.Machine == "" && t.Data != "" && t.Data != r.Good: // it must change anyway
			moving = append(moving, t.Index)
		case t.Machine == "":
			pending = append(pending, t.Index)
		case t.Generation > r.Rollout.After: // it was given the base just now
			kept = append(kept, t.Index)
		case Works(f.Said(name, &t).TaskStatus):
			well = append(well, t.Index)
		default:
			sick = append(sick, t.Index)
		}
	}
	if failed {
		return sh
	}
	for _, index := range slices.Concat(moving, sick, well, kept, pending) {
		if len(sh.Only) < canary.Tasks {
			sh.Only[index] = true
		}
	}
	return sh
}

// onTheMove reports whether a task was stopped for a newer version and has not been
// placed since.
func onTheMove(t *schema.TaskRecord) bool {
	if t.Stop != nil || t.Machine != "" {
		return t.Stop != nil && t.Stop.Kind == schema.CauseUpdate
	}
	return len(t.Causes) > 0 && t.Causes[len(t.Causes)-1].Kind == schema.CauseUpdate
}

// CanaryTasks returns how many tasks the canary has, and how many of them are healthy.
func (f *Facts) CanaryTasks(name schema.JobName, want *schema.Job, p *Progress) (well, n int) {
	if f.Job(name).Rollout == nil {
		return 0, 0
	}
	scope := f.Scope(name, want)
	for index := range scope.Only {
		if p.isWell(index) {
			well++
		}
	}
	return well, len(scope.Only)
}

// CanaryIsIll reports whether a task of a job's canary is not healthy for a reason of its own.
func (f *Facts) CanaryIsIll(name schema.JobName, want *schema.Job, p *Progress) bool {
	only := f.Scope(name, want).Only
	return slices.ContainsFunc(p.ill, func(index int) bool { return only[index] })
}

// Protects reports whether anything is to be kept from data that fails: older
// data that runs, or ran well. Otherwise there is but to go on trying.
func Protects(r *schema.JobRecord, p *Progress) bool {
	return p.Old > 0 || r.Good != "" && r.Good != r.Admitted
}

// RestartFor returns the restart for which a task that runs has yet to be stopped,
// nil if there is none, or it has failed.
func (f *Facts) RestartFor(job schema.JobName, t *schema.TaskRecord) *schema.RestartRequest {
	if len(f.Asked) == 0 { // as most of the time; each task of a rollout is asked about
		return nil
	}
	for _, x := range f.Asked[job] {
		// One that has changed is over, or has failed just now.
		if x.Failed == "" && x.Of(t) && t.Machine != "" && t.Generation <= x.After && !f.DocumentChanged(model.KeyRestart+x.Name) {
			return x.RestartRequest
		}
	}
	return nil
}

// RestartProgress is how far a restart has come.
type RestartProgress struct {
	Left    int    // tasks that run a generation from before
	Waited  int    // that were restarted, and are not healthy yet
	Failing string // says which restarted task has failed and why, "" if none has
}

// Done returns how many tasks of a restart are.
func (p *RestartProgress) Done(x *schema.RestartRequest) int { return max(0, x.Tasks-p.Left-p.Waited) }

// RestartProgress looks at the tasks of a job that runs.
func (f *Facts) RestartProgress(job schema.JobName, x model.Restart) (RestartProgress, Until) {
	var p RestartProgress
	var until Until
	want := f.Admitted(job)
	for _, t := range f.Tasks(job) {
		if !x.Of(&t) || t.Done != nil || !f.Wants(want, &t) {
			continue
		}
		if t.Machine != "" && t.Generation <= x.After {
			p.Left++
			continue
		}
		if !restartedFor(x.RestartRequest, &t) {
			continue
		}
		var said model.ReportedTask
		if t.Machine != "" {
			said = f.Said(job, &t)
		}
		why := failure(&t, said.TaskStatus)
		switch {
		case why != "" && t.Generation > x.After:
			p.Waited++
			p.Failing = fmt.Sprintf("%s %s", job.Task(t.Index).Short(), why)
		case t.Machine == "" && t.Causes[len(t.Causes)-1].Kind != schema.CauseRestart: // it has no place for another reason
		case t.Machine == "" || t.Stop != nil || !f.IsUp(t.Machine):
			p.Waited++
		default:
			healthy, changes := f.Healthy(said, want)
			if until = until.Or(changes); !healthy {
				p.Waited++
			}
		}
	}
	return p, until
}

// restartedFor reports whether the last generation of a task from before a restart
// was stopped for one.
func restartedFor(x *schema.RestartRequest, t *schema.TaskRecord) bool {
	for _, c := range slices.Backward(t.Causes) {
		if c.Generation <= x.After {
			return c.Kind == schema.CauseRestart
		}
	}
	return false
}
