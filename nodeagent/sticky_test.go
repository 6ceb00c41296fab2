package nodeagent_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

func TestStickyDirectories(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	job := func(sticky schema.Sticky) *schema.Job {
		return &schema.Job{Name: "db", User: "u", Cell: "c", Kind: schema.Service, Task: schema.TaskSpec{Sticky: sticky}}
	}
	task := job(schema.StickyHere).ID().Task(0)
	assigned := schema.Assignment{Task: task, Generation: 2, Job: job(schema.StickyHere)}
	stopped, plain := assigned, assigned
	stopped.Stop = &schema.Cause{Kind: schema.CauseRemoved}
	plain.Job = job(schema.NotSticky)
	alive := nodeagent.Held{Assignment: stopped, Incarnations: []nodeagent.Incarnation{{Number: 1, Process: nodeagent.Process{Boot: "b", PID: 5}}}}
	view := func(list ...schema.Assignment) *schema.View { return &schema.View{Assignments: list} }
	for _, c := range []struct {
		name string
		view *schema.View
		held []nodeagent.Held
		idle time.Time
		want nodeagent.StickyKind
		wake time.Time
	}{
		{name: "assigned", view: view(assigned)},
		{name: "nothing is known yet", view: nil, idle: now.Add(-99 * time.Hour)},
		{name: "gone", view: view(), want: nodeagent.Leave},
		{name: "asked to stop, and stopped", view: view(stopped), want: nodeagent.Leave},
		{name: "asked to stop, and still alive", view: view(stopped), held: []nodeagent.Held{alive}},
		{name: "not in the view, and still alive", view: view(), held: []nodeagent.Held{alive}},
		{name: "assigned without one", view: view(plain), want: nodeagent.Leave},
		{name: "gone for a while", view: view(), idle: now.Add(-time.Hour), wake: now.Add(23 * time.Hour)},
		{name: "gone for a day", view: view(), idle: now.Add(-nodeagent.KeepSticky), want: nodeagent.Drop},
		{name: "gone since the future", view: view(), idle: now.Add(time.Hour), want: nodeagent.Leave},
		{name: "back", view: view(assigned), idle: now.Add(-99 * time.Hour), want: nodeagent.Return},
	} {
		plan := nodeagent.Decide(nodeagent.Input{Boot: "b", Now: now, View: c.view, Held: c.held, Sticky: []nodeagent.Sticky{{Task: task, Idle: c.idle}}})
		var want []nodeagent.StickyAction
		if c.want != "" {
			want = []nodeagent.StickyAction{{Kind: c.want, Task: task}}
		}
		if d := cmp.Diff(want, plan.Sticky); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, d)
		}
		if len(c.held) == 0 && c.wake != plan.Wake {
			t.Errorf("%s: wakes at %s, want %s", c.name, plan.Wake, c.wake)
		}
	}
}

// TestStickyGoesForDisk: on a short disk the sticky directory that is idle for
// longest goes, before any task has to stop, and after what has ended.
func TestStickyGoesForDisk(t *testing.T) {
	t.Parallel()
	pressure, limits := short(500*mib, 50*mib)
	web := using("web", 1, 0, mib, 60*mib)
	old := ended(held(assignment("old", 0, 9, schema.Service), exited(1, 0, 1)), schema.CauseUpdate, time.Minute)
	old.Bytes = 10 * mib
	name := func(job string) schema.TaskName { return assignment(job, 0, 1, schema.Service).Task }
	in := nodeagent.Input{
		Machine: "m1", Boot: "boot-1", Now: t0, Pressure: pressure, Limits: limits,
		View: &schema.View{Assignments: []schema.Assignment{web.Assignment}},
		Sticky: []nodeagent.Sticky{
			{Task: name("new"), Idle: t0.Add(-time.Minute)}, {Task: name("long"), Idle: t0.Add(-time.Hour)}, {Task: name("middle"), Idle: t0.Add(-30 * time.Minute)},
		},
	}
	in.Held = []nodeagent.Held{web, old}
	if plan := nodeagent.Decide(in); len(plan.Sticky) != 0 || len(plan.Actions) != 1 || plan.Actions[0].Kind != nodeagent.Remove {
		t.Errorf("beside what has ended: %v, %v, want it to go first", plan.Sticky, plan.Actions)
	}
	in.Held = []nodeagent.Held{web}
	plan := nodeagent.Decide(in)
	if d := cmp.Diff([]nodeagent.StickyAction{{Kind: nodeagent.Drop, Task: name("long")}}, plan.Sticky); d != "" {
		t.Errorf("on a short disk (-want +got)\n%s", d)
	}
	if len(plan.Actions) != 0 {
		t.Errorf("%v, want no task to stop for it", plan.Actions)
	}
	in.Sticky = nil
	if plan := nodeagent.Decide(in); len(plan.Actions) != 1 || plan.Actions[0].Kind != nodeagent.Term {
		t.Errorf("with nothing to remove: %v, want the task to stop", plan.Actions)
	}
	in.Pressure.Room.DiskFree = 500 * mib
	in.Sticky = []nodeagent.Sticky{{Task: name("long"), Idle: t0.Add(-time.Hour)}}
	if plan := nodeagent.Decide(in); len(plan.Sticky) != 0 {
		t.Errorf("%v with room enough", plan.Sticky)
	}
}
