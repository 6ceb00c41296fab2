package facts

import (
	"fmt"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// saidOfJobs is what machines have said of tasks that were asked about, by job: a step asks
// about each task of a job several times, and so does the next one while a job moves; to find
// it costs more than what is done with it.
type saidOfJobs struct {
	jobs  map[schema.JobName]*saidOfJob
	last  *saidOfJob // the one that was asked for last
	round uint64
}

// saidOfJob is what is known of the tasks of a job, by index.
type saidOfJob struct {
	name  schema.JobName
	tasks []saidOfTask
	round uint64 // of the last question
}

// saidOfTask is what a machine has said of a generation, for as long as the machine is as
// it was; generation 0 is none.
type saidOfTask struct {
	generation uint64
	on         *knownMachine
	task       model.ReportedTask
}

// saidFor is for how many updates of a Known what was said is kept of a job that nobody asks
// about: it keeps the reports from being freed. A step makes two.
const saidFor = 4

// saidOf returns what is known of a task of a job that has most tasks, as far as it is known.
func (k *Known) saidOf(job schema.JobName, index int, most func() int) *saidOfTask {
	s := k.said.last
	if s == nil || s.name != job {
		s = k.said.jobs[job]
	}
	if s == nil {
		if k.said.jobs == nil {
			k.said.jobs = map[schema.JobName]*saidOfJob{}
		}
		s = &saidOfJob{name: job}
		k.said.jobs[job] = s
	}
	if index >= len(s.tasks) {
		tasks := make([]saidOfTask, max(index+1, most()))
		copy(tasks, s.tasks)
		s.tasks = tasks
	}
	s.round = k.said.round
	k.said.last = s
	return &s.tasks[index]
}

// forget drops the jobs that nobody has asked about for a while.
func (s *saidOfJobs) forget() {
	s.round++
	s.last = nil
	for name, job := range s.jobs {
		if job.round+saidFor < s.round {
			delete(s.jobs, name)
		}
	}
}

// AuditSaid holds what is kept of what machines have said against what they have. It errs
// with the first difference.
func (k *Known) AuditSaid(o *model.Observed) error {
	for name, job := range k.said.jobs {
		for index := range job.tasks {
			said := &job.tasks[index]
			if said.generation == 0 || said.on.over {
				continue
			}
			if is := o.Task(said.on.record.Name, name.Task(index), said.generation); is != said.task {
				return fmt.Errorf("what is kept of generation %d of %s is %+v: want %+v", said.generation, name.Task(index), said.task, is)
			}
		}
	}
	return nil
}
