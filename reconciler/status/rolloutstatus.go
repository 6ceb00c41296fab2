package status

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// RolloutStatus is how far a job's newest version has come.
type RolloutStatus struct {
	State   RolloutState `json:"state"`
	Message string       `json:"message"` // the state in words
	Healthy int          `json:"healthy"` // tasks that run the newest version, and well
	Of      int          `json:"of"`      // tasks that are desired
	Since   time.Time    `json:"since"`   // when the data was admitted
	// Until is when a canary's wait is over, of one that waits for that.
	Until time.Time `json:"until,omitzero"`
	// Next is what to type about one that does not go on by itself.
	Next string `json:"next,omitempty"`
}

// RolloutState is a word for where a rollout stands.
type RolloutState string

// The states. The last two end when a commit changes the job, or promotes one
// that is paused.
const (
	RolloutCanary   RolloutState = "canary"   // the canary is not healthy yet
	RolloutWaiting  RolloutState = "waiting"  // the canary is, and the rest waits
	RolloutGoing    RolloutState = "rolling"  // the rest gets the data
	RolloutHeld     RolloutState = "held"     // it would go on, and stops no task: a budget, or no room
	RolloutPaused   RolloutState = "paused"   // it has failed
	RolloutReturned RolloutState = "returned" // it has failed, and the job has the previous version
)

// Failed reports whether a rollout does not go on by itself: somebody has to look.
func (r *RolloutStatus) Failed() bool {
	return r != nil && (r.State == RolloutPaused || r.State == RolloutReturned)
}

// Word returns the state, "" if there is no rollout.
func (r *RolloutStatus) Word() string {
	if r == nil {
		return ""
	}
	return string(r.State)
}

// rollout returns the rollout of a job of so many tasks, nil if none is in progress,
// or all that there is to it is that a first version starts.
func (d *describer) rollout(name schema.JobName, desired int) *RolloutStatus {
	r := d.in.State.Jobs[name]
	if r == nil || r.Rollout == nil || r.Admitted == "" {
		return nil
	}
	want := d.in.State.Runs(name)
	p, _ := d.facts().Progress(name, r, want)
	if !facts.Protects(r, &p) && r.Rollout.Failed == "" {
		return nil
	}
	canary := d.facts().Canary(r, want)
	out := &RolloutStatus{State: RolloutGoing, Healthy: p.Healthy, Of: desired, Since: r.Rollout.Since}
	out.Message = schema.Part(p.Healthy, desired, "task", "is", "are") + " healthy with the new version"
	switch {
	case r.Rollout.Returned != "":
		out.State, out.Next = RolloutReturned, nextOfRollout(name, RolloutReturned)
		out.Message = d.returned(name, r, &p)
	case r.Rollout.Failed != "":
		out.State, out.Next = RolloutPaused, nextOfRollout(name, RolloutPaused)
		out.Message = fmt.Sprintf("paused: %s; %s", r.Rollout.Failed, out.Message)
	case canary != nil:
		healthy, tasks := d.facts().CanaryTasks(name, want, &p)
		out.State, out.Message = RolloutCanary, fmt.Sprintf("canary %d of %d healthy", healthy, tasks)
		switch held := d.in.Last.Holds[name]; {
		case healthy == tasks && !r.Rollout.Canary.IsZero():
			out.passes(name, r.Rollout, canary, d.in.Now)
		case held != "":
			out.Message += "; held: " + held
		}
	case d.in.Last.Holds[name] != "":
		out.State = RolloutHeld
		out.Message = fmt.Sprintf("held: %s; %s", d.in.Last.Holds[name], out.Message)
	}
	return out
}

// returned says how far a job has come back to its last healthy version.
func (d *describer) returned(name schema.JobName, r *schema.JobRecord, p *facts.Progress) string {
	since := ", since the newest has failed: " + r.Rollout.Failed
	held := d.in.Last.Holds[name]
	switch {
	case r.Admitted == r.Rollout.Returned:
		return "returns to the last healthy version when that is admitted" + since
	case p.Old > 0 && held != "":
		return "returns to the last healthy version" + since + "; held: " + held
	case p.Old > 0:
		return "returns to the last healthy version" + since
	}
	return "returned to the last healthy version" + since
}

// passes says what a rollout waits for whose canary is healthy.
func (r *RolloutStatus) passes(name schema.JobName, rollout *schema.Rollout, canary *schema.Canary, now time.Time) {
	r.State = RolloutWaiting
	if rollout.Promoted { // and the job is suspended, or it would have passed
		r.Message += ", promoted by a commit"
		return
	}
	if canary.Promote == schema.PromoteCommit {
		r.Message += ", " + control.WaitsFor(name, canary)
		r.Next = nextOfRollout(name, RolloutWaiting)
		return
	}
	r.Until = rollout.Canary.Add(time.Duration(canary.WaitSeconds) * time.Second)
	r.Message += fmt.Sprintf(", waits %s", max(0, r.Until.Sub(now)).Round(time.Second))
}
