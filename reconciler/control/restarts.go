package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// A restart gives each task that has a generation from before the request another
// one, with the version that the task runs: it changes nothing of what is desired.
// Which tasks are left follows from the stored request and their records, so any
// master goes on with it. It stops tasks where a rollout does, within the same
// update policy and disruption budget, and a task that a rollout replaces, or that
// is lost or moved, needs no restart any more.

// RestartChange is what a request comes to: what to answer, and what to store and
// report.
type RestartChange struct {
	Answer schema.Restarting
	Writes []model.Write
	Events []schema.Event
}

// AskRestart returns what restarts the tasks of a job that run, or one of them. It
// takes the place of a request of the same name, and of a job also of those of its
// tasks. Where nothing runs, nothing is to be done, and the answer has no Now. At,
// After and Tasks are not looked at. It errs with NotFoundError if the cell runs no
// such job or task, or must not restart it.
func AskRestart(s *model.State, desired *intent.Desired, x schema.RestartRequest, now time.Time) (RestartChange, error) {
	job, index, isTask := model.SplitName(s.Cell, x.Name)
	if err := restartable(s, desired, x.Name); err != nil {
		return RestartChange{}, err
	}
	if !isTask {
		index = -1
	}
	want := s.Data[s.Jobs[job].Admitted]
	x.At, x.After, x.Tasks, x.Failed, x.FailedAt = now, s.Counter, 0, "", time.Time{}
	for name, c := range s.Chunks {
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if name.Job == job && (index < 0 || index == t.Index) && t.Machine != "" && t.Done == nil && (t.Index < want.Tasks || want.Kind == schema.System) {
				x.Tasks++
			}
		}
	}
	answer := schema.Restarting{Was: []schema.RestartRequest{}}
	if x.Tasks == 0 {
		return RestartChange{Answer: answer}, nil
	}
	writes := []model.Write{s.Document(model.KeyRestart+x.Name, x)}
	answer.Now, answer.AtOnce = &x, min(max(1, want.Update.MaxParallel), want.MayBeDown())
	answer.Was = s.RestartsNamed(x.Name)
	for i := range answer.Was {
		if old := answer.Was[i].Name; old != x.Name {
			writes = append(writes, model.Write{Key: model.KeyRestart + old})
		}
	}
	message := fmt.Sprintf("asked by %s: %s; %s, at most %d at once", x.By, x.Reason, schema.Count(x.Tasks, "task"), answer.AtOnce)
	if n := len(answer.Was); n > 0 {
		message += fmt.Sprintf("; it takes the place of the %s", answer.Was[0].String())
	}
	return RestartChange{answer, writes, []schema.Event{restartEvent(x.Name, isTask, now, message)}}, nil
}

// CancelRestart returns what ends a restart where it is, of a job also those of its
// tasks, and nothing if there is none. by is who asks for it. It errs with
// NotFoundError if the cell has no such job.
func CancelRestart(s *model.State, name, by string, now time.Time) (RestartChange, error) {
	job, _, isTask := model.SplitName(s.Cell, name)
	answer := schema.Restarting{Was: s.RestartsNamed(name)}
	if s.Jobs[job] == nil && len(answer.Was) == 0 {
		return RestartChange{}, model.NotFound(fmt.Sprintf("cell %s has no job %q", s.Cell, job.Short()), "muster status lists the jobs")
	}
	var writes []model.Write
	var events []schema.Event
	for i := range answer.Was {
		x := &answer.Was[i]
		writes = append(writes, model.Write{Key: model.KeyRestart + x.Name})
		events = append(events, restartEvent(x.Name, isTask, now, fmt.Sprintf("cancelled by %s: what is not restarted yet stays; it was a %s", by, x)))
	}
	return RestartChange{answer, writes, events}, nil
}

// restartable errs unless name is a job that runs, or a task of one, and tasks of it
// may be restarted.
func restartable(s *model.State, desired *intent.Desired, name string) error {
	job, index, isTask := model.SplitName(s.Cell, name)
	r := s.Jobs[job]
	if r == nil || r.Admitted == "" {
		if _, ok := desired.Jobs[job]; ok {
			return model.NotFound(fmt.Sprintf("job %q is not admitted: nothing of it runs", job.Short()), "muster why "+job.Short()+" says why it is not")
		}
		return model.NotFound(fmt.Sprintf("cell %s has no job %q", s.Cell, job.Short()), "muster status lists the jobs")
	}
	want := s.Data[r.Admitted]
	if x := s.SuspendedJobs().Of(job); x != nil {
		return model.NotFound(fmt.Sprintf("job %q is %s", job.Short(), x), fmt.Sprintf("nothing of it is stopped until muster resume %s", x.Name))
	}
	switch {
	case want.Kind == schema.Allocs:
		return model.NotFound(fmt.Sprintf("%q is an alloc set, and runs no process of its own", job.Short()), "restart the jobs whose tasks run inside: muster status lists the jobs")
	case isTask && s.Record(job.Task(index)) == nil && (want.Kind == schema.System || index >= want.Tasks):
		return model.NotFound(fmt.Sprintf("job %q has no task %d", job.Short(), index), "muster status "+job.Short()+" lists its tasks")
	}
	return nil
}

func restartEvent(name string, isTask bool, now time.Time, message string) schema.Event {
	e := schema.Event{At: now, Kind: schema.EventRestart, Job: name, Message: message}
	if isTask {
		e.Job, e.Task = model.JobOf(name), name
	}
	return e
}

// restartFor returns the restart for which a task that runs has yet to be stopped,
// nil if there is none, or it has failed.
func (s *step) restartFor(job schema.JobName, t *schema.TaskRecord) *schema.RestartRequest {
	for _, x := range s.asked[job] {
		_, changed := s.restarts[x.Name] // it is over, or has failed just now
		if !changed && x.Failed == "" && x.Of(t) && t.Machine != "" && t.Generation <= x.After {
			return x.RestartRequest
		}
	}
	return nil
}

// restartProgress is how far a restart has come.
type restartProgress struct {
	left    int    // tasks that run a generation from before
	waited  int    // that were restarted, and are not healthy yet
	failing string // says which restarted task has failed and why, "" if none has
}

// done returns how many tasks of a restart are.
func (p *restartProgress) done(x *schema.RestartRequest) int { return max(0, x.Tasks-p.left-p.waited) }

// restartProgressOf looks at the tasks of a job that runs.
func (s *step) restartProgressOf(job schema.JobName, x model.Restart) restartProgress {
	var p restartProgress
	want := s.dataOf(s.job(job).Admitted)
	for _, t := range s.tasks(job) {
		if !x.Of(&t) || t.Done != nil || !s.wants(want, &t) {
			continue
		}
		if t.Machine != "" && t.Generation <= x.After {
			p.left++
			continue
		}
		if !restartedFor(x.RestartRequest, &t) {
			continue
		}
		var said model.ReportedTask
		if t.Machine != "" {
			said = s.in.Observed.Task(t.Machine, job.Task(t.Index), t.Generation)
		}
		why := failure(&t, said.TaskStatus)
		switch {
		case why != "" && t.Generation > x.After:
			p.waited++
			p.failing = fmt.Sprintf("%s %s", job.Task(t.Index).Short(), why)
		case t.Machine == "" && t.Causes[len(t.Causes)-1].Kind != schema.CauseRestart: // it has no place for another reason
		case t.Machine == "" || t.Stop != nil || !s.isUp(t.Machine) || !s.healthy(said, want):
			p.waited++
		}
	}
	return p
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

// followRestarts settles what has become of restarts: they are over, or fail with
// the first restarted task that does.
func (s *step) followRestarts() {
	for _, job := range slices.SortedFunc(maps.Keys(s.asked), schema.JobName.Compare) {
		s.waking = job
		r := s.job(job)
		for _, x := range s.asked[job] {
			say := func(message string) {
				s.event(restartEvent(x.Name, x.Index >= 0, s.now, message))
			}
			if r == nil || r.Admitted == "" {
				s.restarts[x.Name] = nil
				say("over: the job was removed")
				continue
			}
			p := s.restartProgressOf(job, x)
			switch {
			case p.failing != "" && x.Failed == "":
				failed := *x.RestartRequest
				failed.Failed, failed.FailedAt = p.failing, s.now
				s.restarts[x.Name] = &failed
				say(fmt.Sprintf("paused: %s; %s", p.failing, schema.Part(p.done(x.RestartRequest), x.Tasks, "task", "is", "are")+" done"))
			case p.failing == "" && p.left+p.waited == 0:
				s.restarts[x.Name] = nil
				say(fmt.Sprintf("done: %s", schema.Count(x.Tasks, "task")))
			}
		}
	}
	s.waking = schema.JobName{}
}

// lookAtRestarts has another step follow this one where what it has decided, as that
// a job is gone, is the end of a restart.
func (s *step) lookAtRestarts() {
	for job, asked := range s.asked {
		r := s.job(job)
		for _, x := range asked {
			if _, settled := s.restarts[x.Name]; settled {
				continue
			}
			if r == nil || r.Admitted == "" {
				s.wakeAtOnce()
				return
			}
			if p := s.restartProgressOf(job, x); p.failing != "" && x.Failed == "" || p.failing == "" && p.left+p.waited == 0 {
				s.wakeAtOnce()
				return
			}
		}
	}
}
