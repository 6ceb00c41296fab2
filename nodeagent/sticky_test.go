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
	job := func(sticky bool) *schema.Job {
		return &schema.Job{Name: "db", User: "u", Cell: "c", Kind: schema.Service, Task: schema.TaskSpec{Sticky: sticky}}
	}
	task := job(true).ID().Task(0)
	assigned := schema.Assignment{Task: task, Generation: 2, Job: job(true)}
	stopped, plain := assigned, assigned
	stopped.Stop = &schema.Cause{Kind: schema.CauseRemoved}
	plain.Job = job(false)
	alive := nodeagent.Held{Assignment: stopped, Incarnations: []nodeagent.Incarnation{{Number: 1, Boot: "b", PID: 5}}}
	view := func(list ...schema.Assignment) *nodeagent.View { return &nodeagent.View{Assignments: list} }
	for _, c := range []struct {
		name string
		view *nodeagent.View
		held []nodeagent.Held
		idle time.Time
		want nodeagent.StickyKind
		wake time.Time
	}{
		{name: "assigned", view: view(assigned)},
		{name: "nothing is known yet", view: nil, idle: now.Add(-99 * time.Hour)},
		{name: "gone", view: view(), want: nodeagent.Leave},
		{name: "told to stop, and stopped", view: view(stopped), want: nodeagent.Leave},
		{name: "told to stop, and still alive", view: view(stopped), held: []nodeagent.Held{alive}},
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
