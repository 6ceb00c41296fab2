package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// rollouts bring running tasks to the data that their jobs are to run, and restart those
// that somebody has asked to be restarted.
type rollouts struct {
	pass
	cell   *snapshot.Cell
	budget disruption
	away   func(alloc schema.TaskName) string              // see scheduler.away
	held   func(schema.TaskName) func(*placement.Snapshot) // see scheduler.holdsFrom
	moving int                                             // tasks of the cell that are stopping for a new version, or a restart
	// holds says, for each job whose rollout could go on and does not stop a task that
	// works, why.
	holds map[schema.JobName]string
}

// rollOut brings the job's running tasks to the admitted data, where that takes a new
// process. At most as many tasks are stopped at once as the update policy allows; tasks
// that do not work anyway go first, those on silent machines stay. A task that works is
// stopped only if there is a place for the new version. Beyond a canary, and when the
// data has failed, the others keep what they have.
func (s *rollouts) rollOut(job schema.JobName) {
	record := s.Job(job)
	if record.Admitted == "" || s.Frozen(job) {
		return
	}
	r := rollout{job: job, want: s.Admitted(job), digest: record.Admitted}
	r.paused = record.Rollout != nil && record.Rollout.Failed != "" && record.Rollout.Returned == ""
	tasks := s.Tasks(job)
	forward := false
	for i := 0; i < len(tasks) && !forward; i++ {
		t := &tasks[i]
		forward = t.Machine != "" && (len(t.Bring) > 0 || t.Data != r.digest && !r.paused || s.RestartFor(job, t) != nil)
	}
	if !forward {
		return // there is nothing to bring forward
	}
	r.scope = s.Scope(job, r.want)
	for i := range tasks {
		t := &tasks[i]
		switch {
		case !s.Wants(r.want, t) || t.Done != nil:
		case t.Machine == "":
			moves, until := s.HoldsUp(t, r.digest)
			if s.book(job, until); moves {
				r.moving++
			}
		default:
			s.rollAssigned(&r, t)
		}
	}
	s.renewAll(&r)
}

// renewAll stops as many of a job's tasks as may be at once, and has the images and packages
// come of as many that are next.
func (s *rollouts) renewAll(r *rollout) {
	parallel := max(1, r.want.Update.MaxParallel)
	for _, t := range r.sick {
		if r.moving < parallel {
			if data, cause := s.renewal(r, t); data != "" {
				s.renew(r.job, *t, cause)
			}
		}
		r.moving++ // one that stays is down all the same, and takes its part of the budget
	}
	brings, ahead := len(r.want.Task.Brings()) > 0, 0 // tasks for which that is there, or on its way
	for _, t := range r.well {
		if ahead >= parallel || r.moving >= parallel && !brings {
			return
		}
		data, cause := s.renewal(r, t)
		if data == "" {
			continue
		}
		why := s.bring(r.job, t, data)
		if r.moving >= parallel {
			ahead++
			continue
		}
		if why != "" {
			ahead++
			s.hold(r.job, why)
			continue
		}
		why, until := s.waitsFor(r.job, t, data)
		if s.book(r.job, until); why != "" {
			s.hold(r.job, why)
		} else if s.renew(r.job, *t, cause) {
			r.moving++
		}
	}
}

// rollout is a job on its way to its admitted data.
type rollout struct {
	job        schema.JobName
	want       *schema.Job
	digest     schema.Digest        // of want
	paused     bool                 // it has failed: only restarts go on
	scope      facts.Scope          // which tasks shall have it
	sick, well []*schema.TaskRecord // run old data, or are to be restarted
	moving     int                  // are down, or between old and new
}

// rollAssigned counts a task with a machine.
func (s *rollouts) rollAssigned(r *rollout, t *schema.TaskRecord) {
	up := s.IsUp(t.Machine)
	said := s.Said(r.job, t)
	switch {
	case t.Stop != nil:
		r.moving++
	case t.Data == r.digest && s.RestartFor(r.job, t) == nil:
		if len(t.Bring) > 0 { // it has what it was to have next, or keeps what it has
			x := *t
			x.Bring = nil
			s.Set(r.job, x)
		}
		healthy, until := s.Healthy(said, r.want)
		s.book(r.job, until)
		if !up || !healthy {
			r.moving++
		}
	case !up:
		r.moving++ // as far as is known it is down, and the stop cannot be sent
	case facts.Works(said.TaskStatus):
		r.well = append(r.well, t)
	default:
		r.sick = append(r.sick, t)
	}
}

// renewal returns the data that a task which is to be stopped will have next, and
// why it is: the rollout has come to it, or it is to be restarted with what it has.
// It returns "" if it shall run on.
func (s *rollouts) renewal(r *rollout, t *schema.TaskRecord) (schema.Digest, schema.Cause) {
	if t.Data != r.digest && !r.paused && r.scope.Includes(t.Index) {
		return r.digest, s.UpdateCause(r.job, t)
	}
	if x := s.RestartFor(r.job, t); x != nil && t.Data == r.scope.Of(t.Index) {
		return t.Data, schema.Cause{Kind: schema.CauseRestart, Message: fmt.Sprintf("requested by %s: %s", x.By, x.Reason), At: s.Now}
	}
	return "", schema.Cause{}
}

// bring has the machine of a task that works pull the image and the packages of the data that
// it is to have next, those that it does not have: it is stopped when they are there. It says
// what is waited for, "" for nothing.
func (s *rollouts) bring(job schema.JobName, t *schema.TaskRecord, data schema.Digest) (why string) {
	next, has := &s.Data(data).Task, s.Data(t.Data).Task.Brings()
	bring := slices.DeleteFunc(next.Brings(), func(name string) bool { return slices.Contains(has, name) })
	if len(bring) == 0 || !s.couldRun(t.Machine, next) {
		return ""
	}
	said := s.Said(job, t)
	if slices.Equal(said.Brought, bring) {
		return ""
	}
	if !slices.Equal(t.Bring, bring) {
		x := *t
		x.Bring = bring
		s.Set(job, x)
	}
	what, packages := "image", 0
	for _, name := range bring {
		if _, _, ok := schema.SplitSource(name); ok {
			packages++
		}
	}
	switch {
	case packages == len(bring):
		what = "packages"
	case packages > 0:
		what = "image and the packages"
	case len(bring) > 1:
		what = "images"
	}
	why = fmt.Sprintf("%s runs on until machine %s has the %s of the new version", job.Task(t.Index).Short(), t.Machine, what)
	if said.Note != "" {
		why += ": " + strings.Replace(said.Note, schema.NoteNext, "", 1)
	}
	return why
}

// couldRun reports whether a machine has what a task cannot be run without: else it moves,
// and nothing is to be brought there.
func (s *rollouts) couldRun(name string, task *schema.TaskSpec) bool {
	machine := s.Base.Machines[name]
	return machine != nil && !slices.ContainsFunc(schema.IsolationOf(task), func(a string) bool { return machine.Attributes[a] != "true" })
}

// waitsFor says why a task that works may not be stopped for one with the given data
// now, "" if it may: its budget allows that, and there is a place for what comes after.
func (s *rollouts) waitsFor(job schema.JobName, t *schema.TaskRecord, data schema.Digest) (why string, until facts.Until) {
	if why, until = s.Blocked(job, t); why != "" {
		return why, until
	}
	name, want := job.Task(t.Index), s.Data(data)
	if alloc, ok := s.OwnAlloc(name); ok {
		if away := s.away(alloc); away != "" {
			return fmt.Sprintf("%s waits for alloc %s, %s", name.Short(), alloc.Short(), away), until
		}
	}
	next := "the new version"
	if data == t.Data {
		next = "a new process"
	}
	p, changes := s.cell.Placement(snapshot.Ask{Task: name, Job: want, Data: data})
	until, p.Waited = until.Or(changes), 0
	own := p
	own.On = t.Machine
	machines := s.cell.Without(s.cell.GoesWith(job, t)...)
	defer machines.Release()
	if !grows(s.Data(t.Data), want) && (p.On == "" || p.On == t.Machine) && machines.Fits(own, false) {
		return "", until
	}
	s.held(name)(machines)
	if change, _ := s.Diff(s.Data(t.Data), want); change != intent.Restart && data != t.Data && machines.Fits(own, false) {
		s.another() // what it waited for on its machine has gone in this step: it need not be stopped
		return name.Short() + " gets its new limits where it runs", until
	}
	// It takes room that others on their way count on, too. Each of them takes
	// one machine at most.
	switch {
	case s.moving == 0 && machines.Fits(p, true):
	case p.AllocSet == (schema.JobName{}) && p.On == "" && machines.Explain(p).Feasible > s.moving:
	case s.moving > 0 && machines.Fits(p, true):
		why = "other tasks are starting on the machines with room for " + next
	case p.On != "" && want.Kind != schema.System:
		why = fmt.Sprintf("%s %s", name.Short(), s.cell.NoRoomAtHome(&p, machines))
	default:
		why = fmt.Sprintf("no machine has room for %s of %s: %s", next, name.Short(), machines.Explain(p))
	}
	return why, until
}

// hold takes down why a rollout does not go on, the first reason of a step.
func (s *rollouts) hold(job schema.JobName, why string) {
	if s.holds == nil {
		s.holds = map[schema.JobName]string{}
	}
	if s.holds[job] == "" {
		s.holds[job] = why
	}
}

// renew stops a task for its next generation, and reports whether it did.
func (s *rollouts) renew(job schema.JobName, t schema.TaskRecord, cause schema.Cause) bool {
	if s.budget.disrupt(job, t, cause) != "" {
		return false
	}
	s.moving++
	return true
}
