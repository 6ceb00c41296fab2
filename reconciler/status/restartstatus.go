package status

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// RestartStatus is the status of a restart.
type RestartStatus struct {
	schema.RestartRequest
	Done    int    `json:"done"`    // of Tasks
	Message string `json:"message"` // how far it is, in words
	Next    string `json:"next"`    // the command that ends it
}

// restartsOf returns the restarts of a job, sorted by name.
func (d *describer) restartsOf(name schema.JobName) []RestartStatus {
	r := d.in.State.Jobs[name]
	if r == nil || r.Admitted == "" {
		return nil
	}
	var out []RestartStatus
	for _, x := range d.facts().Asked[name] {
		p, _ := d.facts().RestartProgress(name, x)
		done := p.Done(x.RestartRequest)
		message := fmt.Sprintf("%s: %d of %s done", x, done, schema.Count(x.Tasks, "task"))
		switch {
		case x.Failed != "":
			message += "; paused: " + x.Failed
		case d.in.Last.Holds[name] != "":
			message += "; held: " + d.in.Last.Holds[name]
		}
		out = append(out, RestartStatus{RestartRequest: *x.RestartRequest, Done: done, Message: message, Next: "muster restart --cancel " + x.Name})
	}
	return out
}
