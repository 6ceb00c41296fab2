package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/plan/plantest"
	"github.com/musterhq/muster/schema"
)

// stepsOf says in short which steps rollouts have.
func stepsOf(o *plan.Outcome) string {
	var out []string
	for i := range o.Rollouts {
		for _, s := range o.Rollouts[i].Steps {
			out = append(out, fmt.Sprintf("%s %.1f stop%v end%v start%v change%v %s", o.Rollouts[i].Job, s.Seconds, s.Stops, s.Ends, s.Starts, s.Changes, s.Says))
		}
	}
	return strings.Join(out, "\n")
}

// TestRolloutSteps: a rollout is said step by step: its canary, what it waits for, and how it ends.
// What only starts has no steps.
func TestRolloutSteps(t *testing.T) {
	t.Parallel()
	job := func(version string) schema.Job {
		j := plantest.Job("web", 200, 5, version)
		j.Update = schema.UpdatePolicy{MaxParallel: 2, Canary: &schema.Canary{Tasks: 1, WaitSeconds: 30, Promote: schema.PromoteAuto}}
		return j
	}
	c := newCell(t, plantest.Machine("m1", 8, 64))
	if o := does(t, c, plantest.Commit(1, job("1"), plantest.Job("low", 0, 2, "1"))); stepsOf(o) != "" {
		t.Errorf("a new job has steps:\n%s", stepsOf(o))
	}
	urgent := job("2")
	urgent.Priority = 210
	const want = `search/low 0.0 stop[] end[] start[2] change[0 1] 
search/web 0.0 stop[0] end[] start[] change[] 
search/web 0.1 stop[] end[] start[0] change[] 
search/web 0.2 stop[] end[] start[] change[] canary 1 of 1 healthy: waits 30 s
search/web 30.2 stop[1 2] end[] start[] change[] continues after the canary of 1: it was healthy for the wait time of the canary
search/web 30.3 stop[] end[] start[1 2] change[] 
search/web 30.4 stop[3 4] end[] start[] change[] 
search/web 30.5 stop[] end[] start[3 4] change[] 
search/web 30.6 stop[] end[] start[] change[] rollout complete`
	if got := stepsOf(planned(t, c, plantest.Commit(2, urgent, plantest.Job("low", 0, 3, "1")), nil)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got := stepsOf(planned(t, c, plantest.Commit(2, urgent, plantest.Job("low", 0, 2, "1")), func(j *schema.Job) bool { return j.Name == "web" }))
	if !strings.Contains(got, "failed: ") || !strings.Contains(got, "; paused\n") || !strings.HasSuffix(got, " stop[] end[0] start[] change[] ") {
		t.Errorf("it fails:\n%s", got)
	}
	higher := job("1")
	higher.Priority = 210
	if got := stepsOf(planned(t, c, plantest.Commit(2, higher, plantest.Job("low", 0, 2, "1")), nil)); got != "search/web 0.0 stop[] end[] start[] change[0 1 2 3 4] rollout complete" {
		t.Errorf("in place:\n%s", got)
	}
}
