package control

import (
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// scaling has a job have as many tasks as it is to have: it stops those that are not
// desired any more, and asks for a machine for each that has none.
type scaling struct {
	pass
	asks  *asks
	inUse map[schema.TaskName]bool // allocs; found out when a set of them is going
}

// scale brings the number of tasks of a job to what it is to be.
func (s *scaling) scale(name schema.JobName) {
	want, count := s.Admitted(name), 0
	if want != nil {
		count = want.Tasks
	}
	tasks := s.Tasks(name)
	for i := range tasks {
		if !s.Frozen(name) {
			s.stopUnwanted(name, tasks[i], count)
		}
	}
	if want != nil {
		s.askFor(name, want)
	} else if len(s.Tasks(name)) == 0 {
		s.SetJob(name, nil)
	}
}

// askFor asks for a machine for each task of the job that has none and wants
// one now.
func (s *scaling) askFor(name schema.JobName, want *schema.Job) {
	scope := s.Scope(name, want)
	have := s.Tasks(name)
	for index := range want.Tasks {
		var t *schema.TaskRecord
		if len(have) > 0 && have[0].Index == index {
			t, have = &have[0], have[1:]
		}
		s.asks.consider(snapshot.Ask{Task: name.Task(index), Job: s.Data(scope.Of(index)), Data: scope.Of(index)}, t)
	}
}

// stopUnwanted stops a task whose index is not desired any more.
func (s *scaling) stopUnwanted(job schema.JobName, t schema.TaskRecord, count int) {
	switch {
	case t.Index < count:
	case t.Done != nil && s.keepsDone(job):
	case t.Machine == "":
		s.Remove(job, t.Index)
	case t.Stop == nil && s.Job(job).Admitted == "" && s.Data(t.Data).Kind == schema.Allocs && s.occupied(job.Task(t.Index)):
	case t.Stop == nil:
		s.stop(job, t, s.unwanted(job, t))
	}
}

// unwanted returns why a task has to go whose index is not desired any more.
func (s *scaling) unwanted(job schema.JobName, t schema.TaskRecord) schema.Cause {
	removed, isAlloc := s.Job(job).Admitted == "", s.Data(t.Data).Kind == schema.Allocs
	c := schema.Cause{Kind: schema.CauseScaledDown, Message: "the job has fewer tasks now", At: s.Now}
	switch {
	case removed && isAlloc:
		c.Kind, c.Message = schema.CauseRemoved, "the alloc set was removed from the repository"
	case removed:
		c.Kind, c.Message = schema.CauseRemoved, "the job was removed from the repository"
	case isAlloc:
		c.Message = "the alloc set has fewer allocs now"
	}
	return c
}

// keepsDone reports whether a job's finished tasks are remembered beyond its
// count: they are not run again when it grows back.
func (s *scaling) keepsDone(job schema.JobName) bool {
	want := s.Admitted(job)
	return want != nil && want.Kind == schema.Batch
}

// occupied reports whether something runs in an alloc. All other jobs have been looked
// at by then.
func (s *scaling) occupied(alloc schema.TaskName) bool {
	if s.inUse == nil {
		s.inUse = s.InUse()
	}
	return s.inUse[alloc]
}
