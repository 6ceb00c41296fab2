package plan_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/plan/plantest"
	"github.com/musterhq/muster/schema"
)

// checked is a health check every so many seconds, that many times.
func checked(interval, successes int) *schema.Health {
	return &schema.Health{TCP: &schema.TCPCheck{}, StartSeconds: 30, IntervalSeconds: interval, TimeoutSeconds: 1, Failures: 3, Successes: successes}
}

// TestHealth: a task is healthy no earlier than its check allows, and what waits for it comes later.
func TestHealth(t *testing.T) {
	t.Parallel()
	job := func(name, version string, tasks int, h *schema.Health) schema.Job {
		j := plantest.Job(name, 200, tasks, version)
		j.Task.Health = h
		return j
	}
	slow := checked(10, 5)
	const least = 40.05 // the first check, and four more
	c := newCell(t, plantest.Machine("m1", 8, 16), plantest.Machine("m2", 8, 16))
	if o := does(t, c, plantest.Commit(1, job("web", "1", 4, slow), job("quick", "1", 2, checked(1, 1)))); o.Ending != plan.Settled || o.Seconds < least || o.Seconds > least+1 {
		t.Errorf("a start: %s after %v s", o.Ending, o.Seconds)
	}

	// One task after the other, each when the one before is healthy; the job that is quick to be is not held up.
	next := plantest.Commit(2, job("web", "2", 4, slow), job("quick", "2", 2, checked(1, 1)))
	o := planned(t, c, next, nil)
	took := map[string]*plan.Rollout{}
	for i := range o.Rollouts {
		took[o.Rollouts[i].Job] = &o.Rollouts[i]
	}
	if web := took["search/web"]; o.Ending != plan.Settled || web.Seconds < 4*least || web.Seconds > 4*least+4 || web.MostDown != 1 {
		t.Errorf("a rollout: %s, %+v", o.Ending, web)
	}
	if quick := took["search/quick"]; quick.Seconds > 2 || quick.MostDown != 1 {
		t.Errorf("beside it: %+v", quick)
	}

	// It does not work: that is known once failures count.
	if o = planned(t, c, next, func(j *schema.Job) bool { return j.Name == "web" }); o.Ending != plan.Blocked || o.Seconds < 50 || o.Seconds > 70 {
		t.Errorf("a rollout that fails: %s after %v s, %v", o.Ending, o.Seconds, o.Blocked)
	}

	// A plan that begins meanwhile goes on with it.
	if err := c.Commit(next); err != nil {
		t.Fatal(err)
	}
	if err := c.Follow(c.Now().Add(100*time.Second), 0); err != nil {
		t.Fatal(err)
	}
	// A check that goes in place, one that comes, and another one start nothing.
	for i, h := range []*schema.Health{slow, nil, checked(20, 2)} {
		n := i + 3
		next = plantest.Commit(n, job("web", "2", 4, h), job("quick", "2", 2, checked(1, 1)))
		said := planned(t, c, next, nil)
		if said.Ending != plan.Settled || n == 3 && said.Seconds > 4*least {
			t.Errorf("in the middle: %s after %v s: %v", said.Ending, said.Seconds, said.Waiting)
		}
	}
	said := planned(t, c, next, nil)
	if diff := cmp.Diff(said, does(t, c, next)); diff != "" {
		t.Error(diff)
	}

	// A check that comes in place has to pass on what runs.
	c = newCell(t, plantest.Machine("m1", 8, 16))
	does(t, c, plantest.Commit(1, job("web", "1", 2, nil)))
	if o = does(t, c, plantest.Commit(2, job("web", "1", 2, slow))); o.Ending != plan.Settled || fates(o) != "search/web/0 in place, search/web/1 in place" || o.Rollouts[0].Seconds != least {
		t.Errorf("a new check: %s: %s, %+v", o.Ending, fates(o), o.Rollouts)
	}

	// It is followed to what takes longer than a cell at rest is looked at, within an hour.
	if o = does(t, newCell(t, plantest.Machine("m1", 8, 16)), plantest.Commit(1, job("web", "1", 1, checked(1200, 3)))); o.Ending != plan.Settled || o.Seconds < 2400 {
		t.Errorf("a slow check: %s after %v s, %v", o.Ending, o.Seconds, o.Waiting)
	}
	if o = does(t, newCell(t, plantest.Machine("m1", 8, 16)), plantest.Commit(1, job("web", "1", 1, checked(3600, 3)))); o.Ending != plan.Waiting || o.Next == nil || o.Next.At.Sub(at) < 2*time.Hour {
		t.Errorf("a very slow check: %s after %v s, %+v", o.Ending, o.Seconds, o.Next)
	}
}

// TestHealthSeen: a task takes as long to be healthy as those of the job with the same check took, in
// the median, and no less than its check demands; with another check nothing was seen.
func TestHealthSeen(t *testing.T) {
	t.Parallel()
	job := func(version string, h *schema.Health) schema.Job {
		j := plantest.Job("web", 200, 4, version)
		j.Task.Health = h
		return j
	}
	c := newCell(t, plantest.Machine("m1", 8, 16), plantest.Machine("m2", 8, 16))
	does(t, c, plantest.Commit(1, job("1", checked(10, 2))))
	// takes is how long one task takes to be healthy when all get a new version one by one.
	takes := func(millis []int64, h *schema.Health) time.Duration {
		in := c.Moment()
		machines := slices.Collect(model.SavedOf(in.Observed))
		for i := range machines {
			report := *machines[i].Report
			report.Tasks = slices.Clone(report.Tasks)
			for j := range report.Tasks {
				report.Tasks[j].HealthyMillis = millis[report.Tasks[j].Task.Index]
			}
			machines[i].Report = &report
		}
		var b bytes.Buffer
		if err := checkpoint.Write(&b, checkpoint.HeaderOf(in.State, in.Observed, in.Head, in.Now), in.State, in.Observed); err != nil {
			t.Fatal(err)
		}
		saved, err := checkpoint.Read(&b)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := plan.New(plan.Config{State: saved.State, Machines: machines, Now: saved.At, Since: saved.Since})
		if err != nil {
			t.Fatal(err)
		}
		o := does(t, copied, plantest.Commit(2, job("2", h)))
		if o.Ending != plan.Settled || o.Rollouts[0].Stops != 4 {
			t.Fatalf("%s: %+v", o.Ending, o.Rollouts)
		}
		return (time.Duration(o.Rollouts[0].Seconds*1000) * time.Millisecond / 4).Round(time.Second)
	}
	for name, tt := range map[string]struct {
		millis []int64
		h      *schema.Health
		want   time.Duration
	}{
		"nothing seen":            {[]int64{0, 0, 0, 0}, checked(10, 2), 10 * time.Second},
		"the median":              {[]int64{0, 70_000, 30_000, 40_000}, checked(10, 2), 40 * time.Second},
		"no less than the check":  {[]int64{100, 100, 100, 100}, checked(10, 2), 10 * time.Second},
		"another check":           {[]int64{40_000, 40_000, 40_000, 40_000}, checked(10, 3), 20 * time.Second},
		"the mean of the two":     {[]int64{0, 0, 30_000, 40_000}, checked(10, 2), 35 * time.Second},
		"the check is gone there": {[]int64{40_000, 40_000, 40_000, 40_000}, nil, 0},
	} {
		if got := takes(tt.millis, tt.h); got != tt.want {
			t.Errorf("%s: %s a task, want %s", name, got, tt.want)
		}
	}
}
