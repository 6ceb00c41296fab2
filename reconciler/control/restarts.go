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
	want := s.Runs(job)
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
	message := fmt.Sprintf("requested by %s: %s; %s, at most %d at once", x.By, x.Reason, schema.Count(x.Tasks, "task"), answer.AtOnce)
	if n := len(answer.Was); n > 0 {
		message += fmt.Sprintf("; it replaces the %s", answer.Was[0].String())
	}
	e := restartEvent(x.Name, isTask, now, message)
	e.Input = &schema.EventInput{Restart: &x}
	return RestartChange{answer, writes, []schema.Event{e}}, nil
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
		e := restartEvent(x.Name, isTask, now, fmt.Sprintf("cancelled by %s: tasks that are not restarted yet are left alone; it was a %s", by, x))
		e.Input = &schema.EventInput{Cancel: &schema.EventEnded{Name: x.Name, By: by}}
		events = append(events, e)
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
			return model.NotFound(fmt.Sprintf("job %q is not admitted: nothing of it runs", job.Short()), "muster why "+job.Short()+" shows why")
		}
		return model.NotFound(fmt.Sprintf("cell %s has no job %q", s.Cell, job.Short()), "muster status lists the jobs")
	}
	want := s.Runs(job)
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

// restarts end requests to restart tasks.
type restarts struct{ pass }

// follow settles what has become of restarts: they are over, or fail with the first
// restarted task that does.
func (s *restarts) follow() {
	for _, job := range slices.SortedFunc(maps.Keys(s.Asked), schema.JobName.Compare) {
		for _, x := range s.Asked[job] {
			became, message := s.became(job, x)
			if message == "" {
				continue
			}
			if became == nil {
				s.Delete(model.KeyRestart + x.Name)
			} else {
				s.Put(model.KeyRestart+x.Name, became)
			}
			s.Event(restartEvent(x.Name, x.Index >= 0, s.Now, message))
		}
	}
}

// became says what has become of a restart, with the request as it is to be stored from
// now on, nil if it is over; "" if it goes on as it is.
func (s *restarts) became(job schema.JobName, x model.Restart) (*schema.RestartRequest, string) {
	if s.Admitted(job) == nil {
		return nil, "over: the job was removed"
	}
	p, until := s.RestartProgress(job, x)
	s.book(job, until)
	switch {
	case p.Failing != "" && x.Failed == "":
		failed := *x.RestartRequest
		failed.Failed, failed.FailedAt = p.Failing, s.Now
		return &failed, fmt.Sprintf("paused: %s; %s", p.Failing, schema.Part(p.Done(x.RestartRequest), x.Tasks, "task", "is", "are")+" done")
	case p.Failing == "" && p.Left+p.Waited == 0:
		return nil, fmt.Sprintf("done: %s", schema.Count(x.Tasks, "task"))
	}
	return x.RestartRequest, ""
}

// lookAgain has another step follow this one where what it has decided, as that a job is
// gone, is the end of a restart.
func (s *restarts) lookAgain() {
	for job, asked := range s.Asked {
		for _, x := range asked {
			if s.DocumentChanged(model.KeyRestart + x.Name) {
				continue
			}
			if _, message := s.became(job, x); message != "" {
				s.another()
				return
			}
		}
	}
}
