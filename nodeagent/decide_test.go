package nodeagent_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

func held(a schema.Assignment, incarnations ...nodeagent.Incarnation) nodeagent.Held {
	return nodeagent.Held{Assignment: a, Incarnations: incarnations}
}

func running(n int) nodeagent.Incarnation {
	return nodeagent.Incarnation{Number: n, Process: nodeagent.Process{Boot: "boot-1", PID: 100 + n, StartedAt: t0.Add(-time.Minute)}}
}

func exited(n int, code int, ago time.Duration) nodeagent.Incarnation {
	c := running(n)
	c.StartedAt = t0.Add(-ago - time.Second)
	c.Exit = &schema.Exit{Incarnation: n, Code: code, At: t0.Add(-ago)}
	return c
}

func with(c nodeagent.Incarnation, change func(*nodeagent.Incarnation)) nodeagent.Incarnation {
	change(&c)
	return c
}

func ended(h nodeagent.Held, kind schema.CauseKind, ago time.Duration) nodeagent.Held {
	h.End = &schema.Cause{Kind: kind, At: t0.Add(-ago)}
	return h
}

func TestDecide(t *testing.T) {
	t.Parallel()
	web := assignment("web", 0, 7, schema.Service)
	batch := assignment("batch", 0, 9, schema.Batch)
	view := func(list ...schema.Assignment) *schema.View {
		return &schema.View{Epoch: 1, Version: 3, Assignments: list}
	}
	for name, tt := range map[string]struct {
		view     *schema.View
		held     []nodeagent.Held
		shutdown bool
		actions  []string
		states   []schema.TaskState
		wake     time.Duration // from t0; 0: none
	}{
		"no view, nothing held": {},
		"no view: what is held goes on": {
			held: []nodeagent.Held{held(web, running(1)), held(batch, exited(1, 1, time.Hour))}, states: []schema.TaskState{schema.Waiting, schema.Running},
		},
		"no view, shutdown": {
			held: []nodeagent.Held{held(web, running(1))}, shutdown: true,
			actions: []string{"term u/web/0 7#1 shutdown"}, states: []schema.TaskState{schema.Stopping},
		},
		"first start": {view: view(web), actions: []string{"start u/web/0 7#1"}, states: []schema.TaskState{schema.Starting}},
		"start in flight": {
			view: view(web), held: []nodeagent.Held{held(web, nodeagent.Incarnation{Number: 1, Process: nodeagent.Process{Boot: "boot-1"}, Busy: true})},
			states: []schema.TaskState{schema.Starting},
		},
		"start in flight, asked to stop": {
			view: view(stopping(web, schema.CauseRemoved)), held: []nodeagent.Held{held(web, nodeagent.Incarnation{Number: 1, Process: nodeagent.Process{Boot: "boot-1"}, Busy: true})},
			states: []schema.TaskState{schema.Stopping},
		},
		"runs": {view: view(web), held: []nodeagent.Held{held(web, running(1))}, states: []schema.TaskState{schema.Running}},
		"never started, asked to stop": {
			view: view(stopping(web, schema.CauseRemoved)), states: []schema.TaskState{schema.Dead},
		},
		"written but never started": {
			view: view(web), held: []nodeagent.Held{held(web)}, actions: []string{"start u/web/0 7#1"}, states: []schema.TaskState{schema.Starting},
		},
		"written but never started, asked to stop": {
			view: view(stopping(web, schema.CauseRemoved)), held: []nodeagent.Held{held(web)},
			actions: []string{"end u/web/0 7 removed"}, states: []schema.TaskState{schema.Stopping},
		},
		"asked to stop": {
			view: view(stopping(web, schema.CauseUpdate)), held: []nodeagent.Held{held(web, running(2))},
			actions: []string{"term u/web/0 7#2 update"}, states: []schema.TaskState{schema.Stopping},
		},
		"not in the view": {
			view: view(), held: []nodeagent.Held{held(web, running(1))},
			actions: []string{"term u/web/0 7#1 superseded"}, states: []schema.TaskState{schema.Stopping},
		},
		"in its grace period": {
			view: view(), held: []nodeagent.Held{held(web, with(running(1), func(c *nodeagent.Incarnation) { c.TermAt = t0.Add(-2 * time.Second) }))},
			states: []schema.TaskState{schema.Stopping}, wake: 3 * time.Second,
		},
		"grace is over": {
			view: view(), held: []nodeagent.Held{held(web, with(running(1), func(c *nodeagent.Incarnation) { c.TermAt = t0.Add(-5 * time.Second) }))},
			actions: []string{"kill u/web/0 7#1"}, states: []schema.TaskState{schema.Stopping},
		},
		"killed, not yet gone": {
			view: view(), held: []nodeagent.Held{held(web, with(running(1), func(c *nodeagent.Incarnation) {
				c.TermAt, c.KilledAt = t0.Add(-9*time.Second), t0.Add(-time.Second)
			}))}, states: []schema.TaskState{schema.Stopping}, wake: 4 * time.Second,
		},
		"the clock was set back in the grace period": {
			view: view(), held: []nodeagent.Held{held(web, with(running(1), func(c *nodeagent.Incarnation) { c.TermAt = t0.Add(time.Hour) }))},
			actions: []string{"kill u/web/0 7#1"}, states: []schema.TaskState{schema.Stopping},
		},
		"asked to stop before the agent restarted": {
			view: view(web), held: []nodeagent.Held{held(web, with(running(1), func(c *nodeagent.Incarnation) { c.Stop = &schema.Cause{Kind: schema.CauseShutdown} }))},
			actions: []string{"term u/web/0 7#1 shutdown"}, states: []schema.TaskState{schema.Stopping},
		},
		"crashed: back-off": {
			view: view(web), held: []nodeagent.Held{held(web, exited(1, 1, 100*time.Millisecond))},
			states: []schema.TaskState{schema.Waiting}, wake: nodeagent.Backoff(schema.DefaultRestart, web.Task, 1) - 100*time.Millisecond,
		},
		"crashed: restart": {
			view: view(web), held: []nodeagent.Held{held(web, exited(1, 1, time.Second))},
			actions: []string{"start u/web/0 7#2"}, states: []schema.TaskState{schema.Waiting},
		},
		"a service that exits 0 is restarted": {
			view: view(web), held: []nodeagent.Held{held(web, exited(1, 0, time.Second))},
			actions: []string{"start u/web/0 7#2"}, states: []schema.TaskState{schema.Waiting},
		},
		"crashed in the future": {
			view: view(web), held: []nodeagent.Held{held(web, exited(1, 1, -time.Hour))},
			actions: []string{"start u/web/0 7#2"}, states: []schema.TaskState{schema.Waiting},
		},
		"restarts used up": {
			view: view(web), held: []nodeagent.Held{held(web, exited(1, 1, 9e9), exited(2, 1, 8e9), exited(3, 1, 7e9), exited(4, 1, 6e9), exited(5, 1, 5e9))},
			actions: []string{"end u/web/0 7 failed"}, states: []schema.TaskState{schema.Waiting},
		},
		"a long run forgives": {
			view: view(web), held: []nodeagent.Held{held(web, exited(1, 1, 9e9), exited(2, 1, 8e9), exited(3, 1, 7e9),
				with(exited(4, 1, 6e9), func(c *nodeagent.Incarnation) { c.StartedAt = t0.Add(-90 * time.Second) }), exited(5, 1, 5e9))},
			actions: []string{"start u/web/0 7#6"}, states: []schema.TaskState{schema.Waiting},
		},
		"batch finished": {
			view: view(batch), held: []nodeagent.Held{held(batch, exited(1, 0, 0))},
			actions: []string{"end u/batch/0 9 finished"}, states: []schema.TaskState{schema.Waiting},
		},
		"batch finished before it was asked to stop": {
			view: view(stopping(batch, schema.CausePreempted)), held: []nodeagent.Held{held(batch, exited(1, 0, 0))},
			actions: []string{"end u/batch/0 9 finished"}, states: []schema.TaskState{schema.Stopping},
		},
		"batch that exited 0 just before its stop was written down": {
			view: view(stopping(batch, schema.CausePreempted)),
			held: []nodeagent.Held{held(batch, with(exited(1, 0, time.Second), func(c *nodeagent.Incarnation) {
				c.Stop = &schema.Cause{Kind: schema.CausePreempted, At: t0}
			}))},
			actions: []string{"end u/batch/0 9 finished"}, states: []schema.TaskState{schema.Stopping},
		},
		"batch that exited 0 before the signal of a stop that was written down": {
			view: view(stopping(batch, schema.CausePreempted)),
			held: []nodeagent.Held{held(batch, with(exited(1, 0, 0), func(c *nodeagent.Incarnation) {
				c.Stop, c.EndedItself = &schema.Cause{Kind: schema.CausePreempted}, true
			}))},
			actions: []string{"end u/batch/0 9 finished"}, states: []schema.TaskState{schema.Stopping},
		},
		"batch that exits 0 since its machine was shut down has not finished": {
			view: view(batch), held: []nodeagent.Held{held(batch, with(exited(1, 0, 0), func(c *nodeagent.Incarnation) { c.Boot, c.Terminated = "boot-0", true }))},
			actions: []string{"start u/batch/0 9#2"}, states: []schema.TaskState{schema.Waiting},
		},
		"batch that exits 0 while its machine shuts down has not finished, and is not blamed": {
			view: view(batch), held: []nodeagent.Held{held(batch, with(exited(1, 0, 0), func(c *nodeagent.Incarnation) { c.Terminated = true }))},
			actions: []string{"start u/batch/0 9#2"}, states: []schema.TaskState{schema.Waiting},
		},
		"batch that exited 0 before its machine was shut down": {
			view: view(batch), held: []nodeagent.Held{held(batch, with(exited(1, 0, 0), func(c *nodeagent.Incarnation) { c.Boot = "boot-0" }))},
			actions: []string{"end u/batch/0 9 finished"}, states: []schema.TaskState{schema.Waiting},
		},
		"after an orderly shutdown of the machine: started again at once, without blame": {
			view: view(web), held: []nodeagent.Held{held(web, exited(1, 1, 3), exited(2, 1, 3), exited(3, 1, 3), exited(4, 1, 3), with(exited(5, 143, 0), func(c *nodeagent.Incarnation) { c.Boot, c.Terminated = "boot-0", true }))},
			actions: []string{"start u/web/0 7#6"}, states: []schema.TaskState{schema.Waiting},
		},
		"batch that exits 0 on SIGTERM has not finished": {
			view:    view(stopping(batch, schema.CausePreempted)),
			held:    []nodeagent.Held{held(batch, with(exited(1, 0, 0), func(c *nodeagent.Incarnation) { c.Stop = &schema.Cause{Kind: schema.CausePreempted} }))},
			actions: []string{"end u/batch/0 9 preempted"}, states: []schema.TaskState{schema.Stopping},
		},
		"batch failed": {
			view: view(batch), held: []nodeagent.Held{held(batch, exited(1, 3, time.Second))},
			actions: []string{"start u/batch/0 9#2"}, states: []schema.TaskState{schema.Waiting},
		},
		"port in use": {
			view: view(web), held: []nodeagent.Held{{Assignment: web, Refused: &schema.Cause{Kind: schema.CausePortInUse}}},
			actions: []string{"end u/web/0 7 port-in-use"}, states: []schema.TaskState{schema.Starting},
		},
		"ended and in the view: nothing ever again": {
			view: view(web), held: []nodeagent.Held{ended(held(web, exited(1, 1, 1)), schema.CauseFailed, time.Hour)}, states: []schema.TaskState{schema.Dead},
		},
		"ended, out of the view, still reported": {
			view: view(), held: []nodeagent.Held{ended(held(web, exited(1, 1, 1)), schema.CauseFailed, time.Minute)},
			states: []schema.TaskState{schema.Dead}, wake: 9 * time.Minute,
		},
		"ended, out of the view, kept for its logs": {
			view: view(), held: []nodeagent.Held{ended(held(web, exited(1, 1, 1)), schema.CauseRemoved, time.Hour)}, wake: 7*24*time.Hour - time.Hour,
		},
		"failed, out of the view": {
			view: view(), held: []nodeagent.Held{ended(held(web, exited(1, 1, 1)), schema.CauseFailed, 24*time.Hour)}, wake: 6 * 24 * time.Hour,
		},
		"failed a week ago": {
			view: view(), held: []nodeagent.Held{ended(held(web, exited(1, 1, 1)), schema.CauseFailed, 7*24*time.Hour)}, actions: []string{"remove u/web/0 7"},
		},
		"ended well, kept for its logs": {
			view: view(), held: []nodeagent.Held{ended(held(web, exited(1, 0, 0)), schema.CauseUpdate, time.Hour)}, wake: 23 * time.Hour,
		},
		"ended well a day ago": {
			view: view(), held: []nodeagent.Held{ended(held(web, exited(1, 0, 0)), schema.CauseUpdate, 24*time.Hour)}, actions: []string{"remove u/web/0 7"},
		},
		"the older generation is alive: the newer waits": {
			view:   view(stopping(web, schema.CauseUpdate), assignment("web", 0, 8, schema.Service)),
			held:   []nodeagent.Held{held(web, with(running(1), func(c *nodeagent.Incarnation) { c.TermAt = t0 }))},
			states: []schema.TaskState{schema.Stopping, schema.Starting}, wake: 5 * time.Second,
		},
		"the older generation is gone from the view but alive": {
			view: view(assignment("web", 0, 8, schema.Service)), held: []nodeagent.Held{held(web, running(1))},
			actions: []string{"term u/web/0 7#1 superseded"}, states: []schema.TaskState{schema.Stopping, schema.Starting},
		},
		"the older generation has no process": {
			view: view(assignment("web", 0, 8, schema.Service)), held: []nodeagent.Held{held(web, exited(1, 1, 0))},
			actions: []string{"start u/web/0 8#1", "end u/web/0 7 superseded"}, states: []schema.TaskState{schema.Stopping, schema.Starting},
		},
		"the older generation is alive: the newer, written before, waits": {
			view: view(assignment("web", 0, 8, schema.Service)), held: []nodeagent.Held{
				held(web, with(running(1), func(c *nodeagent.Incarnation) { c.TermAt = t0 })), held(assignment("web", 0, 8, schema.Service)),
			},
			states: []schema.TaskState{schema.Stopping, schema.Starting}, wake: 5 * time.Second,
		},
		"two generations wanted: the newer wins": {
			view: view(web, assignment("web", 0, 8, schema.Service)), held: []nodeagent.Held{held(web, running(1))},
			actions: []string{"term u/web/0 7#1 superseded"}, states: []schema.TaskState{schema.Stopping, schema.Starting},
		},
		"shutdown": {
			view: view(web, assignment("web", 1, 8, schema.Service), batch), shutdown: true,
			held:    []nodeagent.Held{held(web, running(1)), held(assignment("web", 1, 8, schema.Service), exited(1, 1, time.Hour))},
			actions: []string{"term u/web/0 7#1 shutdown"}, states: []schema.TaskState{schema.Starting, schema.Stopping, schema.Waiting},
		},
		"after a shutdown: started again at once, without blame": {
			view: view(web), held: []nodeagent.Held{held(web, with(exited(1, 0, 0), func(c *nodeagent.Incarnation) { c.Stop = &schema.Cause{Kind: schema.CauseShutdown} }))},
			actions: []string{"start u/web/0 7#2"}, states: []schema.TaskState{schema.Waiting},
		},
		"the machine was restarted": {
			view: view(web), held: []nodeagent.Held{held(web, with(running(1), func(c *nodeagent.Incarnation) { c.Boot = "boot-0" }))},
			actions: []string{"reap u/web/0 7#1"}, states: []schema.TaskState{schema.Waiting},
		},
		"after a machine restart: started again at once, without blame": {
			view: view(web), held: []nodeagent.Held{held(web, exited(1, 1, 3), exited(2, 1, 3), exited(3, 1, 3), exited(4, 1, 3), with(exited(5, -1, 0), func(c *nodeagent.Incarnation) { c.Boot = "boot-0" }))},
			actions: []string{"start u/web/0 7#6"}, states: []schema.TaskState{schema.Waiting},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := nodeagent.Decide(nodeagent.Input{Machine: "m1", Boot: "boot-1", Now: t0, View: tt.view, Held: tt.held, Shutdown: tt.shutdown})
			if diff := cmp.Diff(tt.actions, describe(plan.Actions)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			var states []schema.TaskState
			for _, s := range plan.Tasks {
				states = append(states, s.State)
			}
			if diff := cmp.Diff(tt.states, states); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			want := time.Time{}
			if tt.wake != 0 {
				want = t0.Add(tt.wake)
			}
			if !plan.Wake.Equal(want) {
				t.Errorf("wake at %v, want %v", plan.Wake, want)
			}
		})
	}
}
