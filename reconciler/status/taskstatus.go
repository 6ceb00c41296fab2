package status

import (
	"fmt"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// example says behind a sentence on several tasks how t is and why; nothing if t is
// nil.
func (t *TaskStatus) example() string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(": %s is %s: %s", t.Name, t.State, t.Reason)
}

// unknown is example where it is said already that tasks are unknown.
func (t *TaskStatus) unknown() string {
	if t == nil || t.State != TaskUnknown {
		return t.example()
	}
	return fmt.Sprintf(": %s: %s", t.Name, t.Reason)
}

// said returns what an agent says of a task that shall run, and may not yet; remark
// is that it says nothing against the task, but notes how it runs.
func said(status *schema.TaskStatus, job *schema.Job) (reason string, remark bool) {
	switch {
	case status.Health == schema.Unhealthy:
		return model.Saw("its health check fails", status), false
	case status.Health == schema.HealthUnknown && status.Unchecked:
		return model.Saw("its health is not known", status), false
	case status.Health == schema.HealthUnknown && status.State == schema.Running:
		return model.Saw("its health check has not passed yet", status), false
	case status.Withheld && len(status.Exits) > 0:
		return status.Exits[len(status.Exits)-1].String() + "; " + status.Note, false
	case status.State == schema.Waiting && len(status.Exits) > 0:
		return status.Exits[len(status.Exits)-1].String() + "; " + restarts(status, job), false
	}
	return status.Note, true
}

// restarts says which restart of its policy a task waits for, and until when.
func restarts(status *schema.TaskStatus, job *schema.Job) string {
	s := "its agent restarts it"
	if !status.RestartAt.IsZero() {
		s += " at " + status.RestartAt.UTC().Format("15:04:05") + " UTC"
	}
	if n := len(status.Exits); n > 0 && status.Exits[n-1].Blameless {
		return s + " (which does not count as a restart of its policy)"
	}
	attempts := 0
	if job != nil {
		attempts = job.Task.RestartPolicy().Attempts
	}
	switch {
	case status.Failures > 0 && status.Failures <= attempts:
		s += fmt.Sprintf(" (restart %d of %d)", status.Failures, attempts)
	case status.Failures > 0 && job != nil: // its agent is about to say so
		return "its restarts are used up"
	}
	return s
}
