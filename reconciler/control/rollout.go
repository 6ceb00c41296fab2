package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// shakyFor is how long a task must have run to count as healthy after it was
// restarted by its agent: one that crashes again and again runs now and then.
const shakyFor = 10 * time.Second

// comesBackWithin is how long a task that lost its machine holds up a rollout:
// one that finds no room would do so for ever, even where the rollout is what
// makes room.
const comesBackWithin = time.Minute

// changeInPlace gives the job's running tasks that can go on with the admitted
// data as they are that data, and with it, say, its priority.
func (s *step) changeInPlace(job schema.JobName) {
	digest := s.job(job).Admitted
	if digest == "" || s.frozen(job) {
		return
	}
	want := s.dataOf(digest)
	for _, t := range s.tasks(job) {
		if t.Machine != "" && t.Stop == nil && t.Data != digest && s.wants(want, &t) && s.inPlace(t.Data, want, place{job.Task(t.Index), t.Machine}) {
			t.Data = digest
			s.set(job, t)
		}
	}
}

// rollOut brings the job's running tasks to the admitted data, where that takes
// a new process, and restarts those that somebody has asked to be restarted. At most as many tasks are stopped at once as the update policy
// allows; tasks that do not work anyway go first, those on silent machines
// stay. A task that works is stopped only if there is a place for the new version.
// Beyond a canary, and when the data has failed, the others keep what they have.
func (s *step) rollOut(job schema.JobName) {
	record := s.job(job)
	if record.Admitted == "" || s.frozen(job) {
		return
	}
	r := rollout{job: job, want: s.dataOf(record.Admitted), digest: record.Admitted}
	r.paused = record.Rollout != nil && record.Rollout.Failed != "" && record.Rollout.Returned == ""
	tasks := s.tasks(job)
	if !slices.ContainsFunc(tasks, func(t schema.TaskRecord) bool {
		return t.Machine != "" && (t.Data != r.digest && !r.paused || s.restartFor(job, &t) != nil)
	}) {
		return // there is nothing to bring forward
	}
	r.share = s.share(job, r.want)
	for _, t := range tasks {
		switch {
		case !s.wants(r.want, &t) || t.Done != nil:
		case t.Machine == "" && s.holdsUp(t, r.digest):
			r.moving++
		case t.Machine == "":
		default:
			s.rollAssigned(&r, t)
		}
	}
	parallel := max(1, r.want.Update.MaxParallel)
	for _, t := range r.sick {
		if data, cause := s.renewal(&r, &t); r.moving < parallel && data != "" {
			s.renew(job, t, cause)
		}
		r.moving++ // one that stays is down all the same, and takes its part of the budget
	}
	for _, t := range r.well {
		if data, cause := s.renewal(&r, &t); r.moving < parallel && data != "" && s.mayRenew(job, &t, data) && s.renew(job, t, cause) {
			r.moving++
		}
	}
}

// renewal returns the data that a task which is to be stopped will have next, and
// why it is: the rollout has come to it, or it is to be restarted with what it has.
// It returns "" if it shall run on.
func (s *step) renewal(r *rollout, t *schema.TaskRecord) (schema.Digest, schema.Cause) {
	if t.Data != r.digest && !r.paused && r.share.includes(t.Index) {
		return r.digest, s.updateCause(r.job, t)
	}
	if x := s.restartFor(r.job, t); x != nil && t.Data == r.share.of(t.Index) {
		return t.Data, schema.Cause{Kind: schema.CauseRestart, Message: fmt.Sprintf("asked by %s: %s", x.By, x.Reason), At: s.now}
	}
	return "", schema.Cause{}
}

// mayRenew reports whether a task that works may be stopped for one with the given
// data: its budget allows that, and there is a place for what comes after.
func (s *step) mayRenew(job schema.JobName, t *schema.TaskRecord, data schema.Digest) bool {
	if why := s.disruptionBlocked(job, t); why != "" {
		s.hold(job, why)
		return false
	}
	name, want := job.Task(t.Index), s.dataOf(data)
	if alloc, ok := s.ownAlloc(name); ok && s.away(alloc) != "" {
		s.hold(job, fmt.Sprintf("%s waits for alloc %s, %s", name.Short(), alloc.Short(), s.away(alloc)))
		return false
	}
	next := "the new version"
	if data == t.Data {
		next = "a new process"
	}
	p := s.placementAsk(ask{name, want, data})
	p.Waited = 0
	own := p
	own.On = t.Machine
	snapshot := s.without(s.goesWith(job, t)...)
	defer snapshot.Release()
	if !grows(s.dataOf(t.Data), want) && (p.On == "" || p.On == t.Machine) && snapshot.Fits(own, false) {
		return true
	}
	// It takes room that others on their way count on, too. Each of them takes
	// one machine at most.
	switch {
	case s.moving == 0 && snapshot.Fits(p, true):
	case p.AllocSet == (schema.JobName{}) && p.On == "" && snapshot.Explain(p).Feasible > s.moving:
	case s.moving > 0 && snapshot.Fits(p, true):
		s.hold(job, "other tasks are starting on the machines with room for "+next)
		return false
	case p.On != "" && want.Kind != schema.System:
		s.hold(job, fmt.Sprintf("%s %s", name.Short(), s.noRoomAtHome(&p, snapshot)))
		return false
	default:
		s.hold(job, fmt.Sprintf("no machine has room for %s of %s: %s", next, name.Short(), snapshot.Explain(p)))
		return false
	}
	return true
}

// goesWith returns a task and, of an alloc, what runs inside.
func (s *step) goesWith(job schema.JobName, t *schema.TaskRecord) []victim {
	name := job.Task(t.Index)
	out := []victim{{name, t.Machine}}
	if s.dataOf(t.Data).Kind == schema.Allocs {
		for _, chunk := range s.chunkNames() {
			for _, u := range s.chunk(chunk).Tasks {
				if u.Alloc != nil && u.Machine == t.Machine && u.Alloc.Of(chunk.Job) == name {
					out = append(out, victim{chunk.Job.Task(u.Index), u.Machine})
				}
			}
		}
	}
	return out
}

// grows reports whether a task takes anything of a machine that it has not now.
func grows(old, next *schema.Job) bool {
	o, n := old.Task.Resources, next.Task.Resources
	fits := n.Resources.Fits(o.Resources)
	o.Resources, n.Resources = schema.Resources{}, schema.Resources{}
	return !fits || intent.Differ(o, n)
}

// hold takes down why a rollout does not go on, the first reason of a step.
func (s *step) hold(job schema.JobName, why string) {
	if s.out.Holds == nil {
		s.out.Holds = map[schema.JobName]string{}
	}
	if s.out.Holds[job] == "" {
		s.out.Holds[job] = why
	}
}

// rollout is a job on its way to its admitted data.
type rollout struct {
	job        schema.JobName
	want       *schema.Job
	digest     schema.Digest       // of want
	paused     bool                // it has failed: only restarts go on
	share      rolloutScope        // which tasks shall have it
	sick, well []schema.TaskRecord // run old data, or are to be restarted
	moving     int                 // are down, or between old and new
}

// rollAssigned counts a task with a machine.
func (s *step) rollAssigned(r *rollout, t schema.TaskRecord) {
	up := s.isUp(t.Machine)
	said := s.in.Observed.Task(t.Machine, r.job.Task(t.Index), t.Generation)
	switch {
	case t.Stop != nil:
		r.moving++
	case t.Data == r.digest && s.restartFor(r.job, &t) == nil:
		if !up || !s.healthy(said, r.want) {
			r.moving++
		}
	case !up:
		r.moving++ // as far as is known it is down, and it cannot be told
	case Works(said.TaskStatus):
		r.well = append(r.well, t)
	default:
		r.sick = append(r.sick, t)
	}
}

// holdsUp reports whether a task without a machine counts as on its way from
// old data to new: always when the rollout itself, or the new version, is why.
func (s *step) holdsUp(t schema.TaskRecord, digest schema.Digest) bool {
	if len(t.Causes) == 0 {
		return false // it never ran
	}
	last := t.Causes[len(t.Causes)-1]
	if last.Kind == schema.CauseUpdate || last.Kind == schema.CauseRestart || t.Data == digest && t.Failures > 0 {
		return true
	}
	return s.waits(last.At.Add(comesBackWithin), comesBackWithin)
}

// updateCause returns why a task is stopped for the admitted version.
func (s *step) updateCause(job schema.JobName, t *schema.TaskRecord) schema.Cause {
	record := s.job(job)
	message := "restarts with the new version"
	change, _ := intent.Diff(s.dataOf(t.Data), s.dataOf(record.Admitted))
	switch {
	case s.dataOf(t.Data).Kind == schema.Allocs:
		message = "replaced by an alloc of the new version"
	case record.Rollout != nil && record.Rollout.Returned != "":
		message = "returns to the last healthy version"
	case intent.GoesBack(record, s.dataOf(t.Data), s.dataOf(record.Admitted)):
		message = intent.EarlierVersion
	case change == intent.Resize:
		message = "its machine has no room for its new limits"
	case change == intent.Move:
		message = "its machine does not meet the job's new constraints"
	}
	return schema.Cause{Kind: schema.CauseUpdate, Message: message, At: s.now}
}

// renew stops a task for its next generation, and reports whether it did.
func (s *step) renew(job schema.JobName, t schema.TaskRecord, cause schema.Cause) bool {
	stopped := s.disrupt(job, t, cause)
	if stopped {
		s.moving++
	}
	return stopped
}

// forget returns the record of a pending task without what the previous version has
// earned: that it was done, when the job is no batch now, and its back-off, when
// a new process may do better. A machine that was short of something is so for
// new version, too.
func (s *step) forget(job schema.JobName, t schema.TaskRecord, want *schema.Job) schema.TaskRecord {
	switch {
	case t.Done != nil && want.Kind == schema.Batch:
		return t
	case t.Done == nil && (t.Failures == 0 && t.NotBefore.IsZero() && len(t.Avoid) == 0 || s.inPlace(t.Data, want, place{})):
		return t
	}
	avoid := t.Avoid
	t.Done, t.Failures, t.NotBefore, t.Avoid = nil, 0, time.Time{}, nil
	if n := len(t.Causes); n > 0 && t.Causes[n-1].Kind == schema.CauseOutOfResources {
		if until, ok := avoid[t.Causes[n-1].Machine]; ok {
			t.Avoid = map[string]time.Time{t.Causes[n-1].Machine: until}
		}
	}
	s.set(job, t)
	return t
}

// inPlace reports whether a task that runs the data with the given digest on
// a machine can go on as it is when want is its data. For a task without one
// only what a new process would change counts.
func (s *step) inPlace(digest schema.Digest, want *schema.Job, at place) bool {
	change, fields := intent.Diff(s.dataOf(digest), want)
	if change == intent.Restart {
		return false
	}
	does := func(c intent.Change) bool {
		return slices.ContainsFunc(fields, func(f intent.FieldChange) bool { return f.Change == c })
	}
	switch {
	case does(intent.Resize) && at.machine == "":
		return false // it may do better with more
	case does(intent.Resize) && !s.snapshot().HasRoom(at.task, at.machine, want.Task.Resources.Resources):
		return false
	case does(intent.Move) && at.machine != "":
		_, ok := slices.BinarySearch(s.eligible(want), at.machine)
		return ok
	}
	return true
}

// place is a task, and the machine that it is on or "".
type place struct {
	task    schema.TaskName
	machine string
}

// eligible returns the machines that tasks of a job may be on, sorted.
func (s *step) eligible(want *schema.Job) []string {
	if s.mayRun == nil {
		s.mayRun = map[*schema.Job][]string{}
	}
	names, ok := s.mayRun[want]
	if !ok {
		names = s.snapshot().Eligible(bareAsk(want.ID().Task(0), want))
		s.mayRun[want] = names
	}
	return names
}

// Works reports whether a task runs and does its work.
func Works(t *schema.TaskStatus) bool {
	return t != nil && t.State == schema.Running && t.Health != schema.Unhealthy && t.Health != schema.HealthUnknown
}

// healthy reports whether a task works, and has run long enough for the update
// policy.
func (s *step) healthy(t model.ReportedTask, want *schema.Job) bool {
	return s.worksFor(t, time.Duration(want.Update.MinHealthySeconds)*time.Second)
}

// worksFor reports whether a task works, and has run for so long; for a moment
// at least if it was restarted by its agent.
func (s *step) worksFor(t model.ReportedTask, need time.Duration) bool {
	if !Works(t.TaskStatus) {
		return false
	}
	if schema.Crashes(t.Exits) > 0 {
		need = max(need, shakyFor)
	}
	until := t.Since.Add(need)
	s.wake(until)
	return !s.now.Before(until)
}

// wants reports whether a job has a task of this index now.
func (s *step) wants(want *schema.Job, t *schema.TaskRecord) bool {
	if want.Kind == schema.System {
		return t.On != "" && !s.gone(t.On) && (t.Machine != "" || !s.closed(t.On))
	}
	return t.Index < want.Tasks
}
