package reconciler

import (
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// MayDisrupt is what a step is told that wants to stop one more task.
func MayDisrupt(in Input, job schema.JobName) bool {
	s := newStep(in)
	s.surveyMachines()
	return s.mayDisrupt(job)
}

// GarbageAfter is what a step deletes of job data that has changed a task of a
// job and nothing else.
func GarbageAfter(s *model.State, task schema.TaskName) []model.Write {
	d := newDraft(s, time.Time{})
	d.own(task.JobName, task.Index)
	return d.garbage()
}

// Described is what a status of m is a function of.
func Described(m *Master, now time.Time) DescribeInput { return m.described(now) }

// OnTime has m not be late for its next round at now: between two turns of a test
// nothing happens, however long they are apart.
func OnTime(m *Master, now time.Time) {
	if m.last.Wake.Before(now) {
		m.last.Wake = time.Time{}
	}
}
