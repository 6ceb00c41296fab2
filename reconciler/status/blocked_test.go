package status_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

// TestAllBlocked: a cell is blocked when each thing that it waits for needs a person.
func TestAllBlocked(t *testing.T) {
	t.Parallel()
	paused := status.Blocker{Kind: status.BlockedRollout, Name: "a/web"}
	job := status.JobStatus{Name: "a/web", Reason: "paused; 1 task is pending"}
	for name, tt := range map[string]struct {
		status status.Status
		want   bool
	}{
		"nothing waits":               {status.Status{}, false},
		"a rollout has failed":        {status.Status{Blocked: []status.Blocker{paused}, Jobs: []status.JobStatus{job}}, true},
		"another job is pending":      {status.Status{Blocked: []status.Blocker{paused}, Jobs: []status.JobStatus{job, {Name: "a/db", Reason: "1 task is pending"}}}, false},
		"another job is as desired":   {status.Status{Blocked: []status.Blocker{paused}, Jobs: []status.JobStatus{job, {Name: "a/db"}}}, true},
		"it ends by itself":           {status.Status{Blocked: []status.Blocker{{Kind: status.BlockedSuspended, Until: time.Unix(1, 0)}}}, false},
		"a machine is drained":        {status.Status{Blocked: []status.Blocker{paused}, Waits: []status.Wait{{Kind: status.WaitDrain}}}, false},
		"machines may admit a job":    {status.Status{Blocked: []status.Blocker{paused}, Rejected: []status.Rejection{{Machines: true}}}, false},
		"a job is not admitted":       {status.Status{Blocked: []status.Blocker{{Kind: status.BlockedRejected, Name: "a/db"}}, Rejected: []status.Rejection{{Job: "a/db"}}, Jobs: []status.JobStatus{{Name: "a/db", Reason: "rejected"}}}, true},
		"the repository is not there": {status.Status{Blocked: []status.Blocker{paused}, SourceStatus: status.SourceStatus{Source: "refused"}}, false},
	} {
		if got := tt.status.AllBlocked(); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
