package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

func TestCrashPattern(t *testing.T) {
	t.Parallel()
	well := crashCount{generations: 1, healthy: true}
	for name, tt := range map[string]struct {
		by         map[string]crashCount
		text, only string
	}{
		"nothing":      {nil, "", ""},
		"all is well":  {map[string]crashCount{"m-1": well, "m-2": well}, "", ""},
		"one bad luck": {map[string]crashCount{"m-1": {failed: 1, generations: 1}, "m-2": well}, "", ""},
		"here only": {
			map[string]crashCount{"m-1": well, "m-2": well, "m-3": {failed: 4, generations: 4}},
			"crashes on m-3 only (4 of 4 generations there; healthy on 2 other machines)", "m-3",
		},
		"here mostly": {
			map[string]crashCount{"m-1": well, "m-3": {failed: 2, generations: 5}},
			"crashes on m-3 only (2 of 5 generations there; healthy on 1 other machine)", "m-3",
		},
		"here, and nobody knows of elsewhere": {
			map[string]crashCount{"m-3": {failed: 2, generations: 2}}, "crashes on m-3 (2 generations), and runs nowhere else", "",
		},
		"it failed there and runs there now": {map[string]crashCount{"m-3": {failed: 3, generations: 4, healthy: true}}, "", ""},
		"everywhere": {
			map[string]crashCount{"m-1": {failed: 1, generations: 1}, "m-2": {failed: 1, generations: 1}, "m-3": {failed: 2, generations: 2}, "m-4": {failed: 1, generations: 1}},
			"crashes everywhere: on m-1, m-2, m-3 and 1 more (5 generations)", "",
		},
		"on some": {
			map[string]crashCount{"m-1": {failed: 1, generations: 1}, "m-2": {failed: 1, generations: 1}, "m-3": well},
			"crashes on m-1, m-2 (2 generations); healthy on 1 other machine", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text, only := crashPattern(tt.by); text != tt.text || only != tt.only {
				t.Errorf("%q, %q: want %q, %q", text, only, tt.text, tt.only)
			}
		})
	}
}

// TestRestartsOf: what runs before a task is an incarnation of its own, and no restart.
func TestRestartsOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ incarnation, attempt, before, want int }{
		{0, 0, 0, 0},
		{1, 0, 0, 0},
		{4, 0, 0, 3},
		{3, 1, 2, 0},
		{4, 4, 2, 3},
		{6, 4, 2, 3},
		{3, 0, 2, 0}, // of an earlier release
		{6, 0, 2, 1},
	} {
		if got := restartsOf(&schema.TaskStatus{Incarnation: tt.incarnation, Attempt: tt.attempt}, tt.before); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

func TestCrashes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	job := schema.JobName{Cell: "c", User: "u", Job: "web"}
	ended := func(machine string, kind schema.CauseKind, ago time.Duration) schema.Cause {
		return schema.Cause{Kind: kind, Machine: machine, At: now.Add(-ago)}
	}
	o := model.NewObserved(now.Add(-time.Hour))
	report := func(machine string, at time.Time, list ...schema.TaskStatus) {
		o.AddReport(schema.Report{Machine: schema.MachineInfo{Name: machine}, Tasks: list}, at)
	}
	exits := make([]schema.Exit, 2)
	report("m1", now.Add(-time.Second), schema.TaskStatus{Task: job.Task(0), Generation: 1, State: schema.Running, Exits: exits})
	report("m2", now.Add(-2*time.Minute), schema.TaskStatus{Task: job.Task(1), Generation: 2, State: schema.Running, Exits: exits})
	report("m3", now, schema.TaskStatus{Task: job.Task(2), Generation: 3, State: schema.Waiting, Failures: 3})
	report("m4", now, schema.TaskStatus{Task: job.Task(3), Generation: 4, State: schema.Running, Health: schema.Unhealthy})
	records := []*schema.TaskRecord{
		{Index: 0, Generation: 1, Machine: "m1"},
		{Index: 1, Generation: 2, Machine: "m2", Causes: []schema.Cause{
			ended("m5", schema.CauseFailed, 50*time.Minute), ended("m5", schema.CauseStartFailed, 40*time.Minute), ended("m5", schema.CausePreempted, 30*time.Minute),
			ended("m6", schema.CauseFailed, 2*time.Hour), // of the data before
		}},
		{Index: 2, Generation: 3, Machine: "m3"},
		{Index: 3, Generation: 4, Machine: "m4"},
		{Index: 4, Generation: 5, Machine: "m4", Stop: &schema.Cause{}},
		{Index: 5, Generation: 6, Machine: "m7"}, // not taken yet
	}
	want := map[string]crashCount{
		"m1": {failed: 1, generations: 1}, "m2": {generations: 1, healthy: true}, "m3": {failed: 1, generations: 1},
		"m4": {generations: 1}, "m5": {failed: 2, generations: 3},
	}
	tasks := make([]reportedRecord, 0, len(records))
	for _, r := range records {
		tasks = append(tasks, reportedRecord{r, o.Task(r.Machine, job.Task(r.Index), r.Generation)})
	}
	for i, want := range []bool{true, true, true, false, false, false} {
		if got := tasks[i].hasFailed(); got != want {
			t.Errorf("task %d has failed: %t", i, got)
		}
	}
	got := crashes(now.Add(-time.Hour), tasks, now)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(crashCount{})); diff != "" {
		t.Errorf("crashes (-want +got):\n%s", diff)
	}
	if notes := crashNote([]string{"a/web"}); notes != nil {
		t.Errorf("one job is noted: %q", notes)
	}
	if notes := crashNote([]string{"a/web", "b/api"}); len(notes) != 1 || notes[0] != "2 jobs crash here only, and run well elsewhere: a/web, b/api" {
		t.Errorf("two jobs: %q", notes)
	}
}

// An incarnation becomes unhealthy once, whatever else is reported of it.
func TestUnhealthyEvent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := model.NewObserved(now)
	job := schema.JobName{Cell: "c", User: "u", Job: "web"}
	report := func(state schema.TaskState, incarnation int, health schema.HealthState) (got []string) {
		for _, e := range o.AddReport(schema.Report{Machine: schema.MachineInfo{Name: "m1"}, Tasks: []schema.TaskStatus{{
			Task: job.Task(0), Generation: 7, State: state, Incarnation: incarnation, PID: 5, Health: health, HealthMessage: "GET /: status 500",
		}}}, now) {
			got = append(got, string(e.Kind)+": "+e.Message)
		}
		return got
	}
	const sick = "unhealthy: its health check fails: GET /: status 500"
	for i, step := range []struct {
		state       schema.TaskState
		incarnation int
		health      schema.HealthState
		want        []string
	}{
		{schema.Running, 1, schema.Unhealthy, nil}, // no news to a new master
		{schema.Running, 1, schema.Healthy, nil},
		{schema.Running, 1, schema.Unhealthy, []string{sick}},
		{schema.Stopping, 1, schema.Unhealthy, nil},
		{schema.Running, 2, schema.HealthUnknown, []string{"start: runs as pid 5"}},
		{schema.Stopping, 2, schema.Unhealthy, []string{sick}},
	} {
		if diff := cmp.Diff(step.want, report(step.state, step.incarnation, step.health)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// What an agent says of a task is put in words by what its fields say, and only what
// is no trouble is a remark.
func TestSaid(t *testing.T) {
	t.Parallel()
	own := []schema.Exit{{Code: 3}}
	for name, tt := range map[string]struct {
		status schema.TaskStatus
		says   string
		remark bool
	}{
		"not checked yet": {schema.TaskStatus{State: schema.Running, Health: schema.HealthUnknown}, "its health check has not passed yet", false},
		"checks that cannot be made": {
			schema.TaskStatus{State: schema.Running, Health: schema.HealthUnknown, Checking: schema.Checking{Unchecked: true}, HealthMessage: "no keeper"},
			"its health is not known: no keeper", false,
		},
		"withheld after an end":   {schema.TaskStatus{State: schema.Waiting, Withheld: true, Exits: own, Note: "not yet"}, "exited with status 3; not yet", false},
		"waits after an end":      {schema.TaskStatus{State: schema.Waiting, Exits: own, Note: "not yet"}, "exited with status 3; its agent restarts it", false},
		"withheld from its start": {schema.TaskStatus{State: schema.Waiting, Withheld: true, Note: "not yet"}, "not yet", true},
		"a remark":                {schema.TaskStatus{State: schema.Running, Note: "no cgroups"}, "no cgroups", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, remark := said(&tt.status, nil); got != tt.says || remark != tt.remark {
				t.Errorf("said %q, a remark %t; want %q, %t", got, remark, tt.says, tt.remark)
			}
		})
	}
}

// What others did to a task is no crash of its job, and no restart of its policy.
func TestBlameless(t *testing.T) {
	t.Parallel()
	killed := schema.Exit{Code: -1, Blameless: true, Message: "its keeper was killed, and the task with it"}
	own := schema.Exit{Code: 3}
	waiting := func(failures int, exits ...schema.Exit) *schema.TaskStatus {
		return &schema.TaskStatus{State: schema.Waiting, Failures: failures, Exits: exits}
	}
	none, two := &schema.Job{Task: schema.TaskSpec{Restart: &schema.Restart{}}}, &schema.Job{Task: schema.TaskSpec{Restart: &schema.Restart{Attempts: 2}}}
	for name, tt := range map[string]struct {
		status *schema.TaskStatus
		job    *schema.Job
		says   string
	}{
		"keepers killed":         {waiting(0, killed, killed, killed), two, "ended: its keeper was killed, and the task with it; its agent restarts it (which does not count as a restart of its policy)"},
		"one crash among them":   {waiting(1, killed, own, killed), two, "ended: its keeper was killed, and the task with it; its agent restarts it (which does not count as a restart of its policy)"},
		"one crash":              {waiting(1, killed, own), two, "exited with status 3; its agent restarts it (restart 1 of 2)"},
		"two crashes":            {waiting(2, own, killed, own), two, "exited with status 3; its agent restarts it (restart 2 of 2)"},
		"no restarts":            {waiting(1, own), none, "exited with status 3; its restarts are used up"},
		"one more than there is": {waiting(3, own), two, "exited with status 3; its restarts are used up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, _ := said(tt.status, tt.job); got != tt.says {
				t.Errorf("said %q, want %q", got, tt.says)
			}
		})
	}
}
