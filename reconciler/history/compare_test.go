package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/history"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// events are of one commit after the other second.
func events(all ...schema.Event) []schema.EventRecord {
	out := make([]schema.EventRecord, 0, len(all))
	for i, e := range all {
		e.At = at.Add(time.Duration(i+1) * time.Second)
		out = append(out, schema.EventRecord{ID: uint64(i + 1), Event: e})
	}
	return out
}

func starts(task, machine string, generation uint64) schema.Event {
	return schema.Event{Kind: schema.EventSchedule, Task: task, Machine: machine, Generation: generation}
}

func ends(kind schema.EventKind, task, machine string, generation uint64, cause schema.CauseKind, message string) schema.Event {
	return schema.Event{Kind: kind, Task: task, Machine: machine, Generation: generation, Cause: cause, Message: message}
}

// updated is a task that restarts on its machine: its stop is decided, and then it has ended.
func updated(task, machine string, generation uint64) []schema.Event {
	return []schema.Event{
		ends(schema.EventEvict, task, machine, generation, schema.CauseUpdate, "new version"),
		ends(schema.EventEvict, task, machine, generation, schema.CauseUpdate, "stopped: new version"),
		starts(task, machine, generation+10),
	}
}

// restarts is the plan of tasks of u/web that restart on m1.
func restarts(tasks ...string) *plan.Outcome {
	o := &plan.Outcome{}
	for _, t := range tasks {
		o.Tasks = append(o.Tasks, plan.Task{Name: t, Fate: plan.Restarts, From: "m1", To: "m1", Causes: []schema.CauseKind{schema.CauseUpdate}})
	}
	return o
}

// TestCompare: which tasks did something else than was planned, and why.
func TestCompare(t *testing.T) {
	t.Parallel()
	machine := func(name, message string) schema.Event {
		return schema.Event{Kind: schema.EventMachine, Machine: name, Message: message}
	}
	for _, tc := range []struct {
		name   string
		plan   *plan.Outcome
		events []schema.EventRecord
		open   bool
		// stopping are generations that were so before.
		stopping []uint64
		same     int
		why      map[string]string // by task that differs
	}{
		{name: "as planned", plan: restarts("u/web/0"), events: events(updated("u/web/0", "m1", 1)...), same: 1},
		{
			name: "in place", same: 1,
			plan: &plan.Outcome{Tasks: []plan.Task{{Name: "u/web/0", Fate: plan.InPlace, From: "m1", To: "m1"}}},
		},
		{
			name: "starts, and stops", same: 2,
			plan:   &plan.Outcome{Tasks: []plan.Task{{Name: "u/web/0", Fate: plan.Starts, To: "m2"}, {Name: "u/old/0", Fate: plan.Stops, From: "m1"}}},
			events: events(starts("u/web/0", "m2", 2), ends(schema.EventKill, "u/old/0", "m1", 1, schema.CauseRemoved, "removed")),
		},
		{
			name: "its machine was lost", plan: restarts("u/web/0", "u/web/1"), same: 1,
			events: events(append(updated("u/web/0", "m1", 1),
				machine("m1", "lost: silent for 1m0s"), ends(schema.EventLost, "u/web/1", "m1", 2, schema.CauseMachineLost, "machine lost"), starts("u/web/1", "m2", 12))...),
			why: map[string]string{"u/web/1": "machine m1 was lost with it"},
		},
		{
			name: "another machine has joined", plan: restarts("u/web/0"),
			events: events(machine("m9", "joined"), ends(schema.EventEvict, "u/web/0", "m1", 1, schema.CauseUpdate, "new version"), starts("u/web/0", "m9", 2)),
			why:    map[string]string{"u/web/0": "machine m9 joined"},
		},
		{
			name: "what a drain says is no reason", plan: restarts("u/web/0"),
			events: events(schema.Event{Kind: schema.EventMachine, Machine: "m1", Declared: true, Message: "drained: nothing runs on it any more"}),
			why:    map[string]string{"u/web/0": "the events do not say why"},
		},
		{
			name: "one fails, and the rollout stops for the others", plan: restarts("u/web/0", "u/web/1"),
			events: events(append(updated("u/web/0", "m1", 1), ends(schema.EventFail, "u/web/0", "m1", 11, schema.CauseFailed, "exit code 3"))...),
			why:    map[string]string{"u/web/0": "exit code 3", "u/web/1": "u/web/0: exit code 3"},
		},
		{
			name: "a batch task is done", plan: &plan.Outcome{Tasks: []plan.Task{{Name: "u/once/0", Fate: plan.Starts, To: "m1"}}},
			events: events(starts("u/once/0", "m1", 1), ends(schema.EventFinish, "u/once/0", "m1", 1, schema.CauseFinished, "finished")),
			why:    map[string]string{"u/once/0": "it is done, and a plan takes batch tasks not to be"},
		},
		{
			name: "suspended", plan: restarts("u/web/0"),
			events: events(schema.Event{Kind: schema.EventSuspend, Job: "u/web", Message: "suspended by ann: look at it"}),
			why:    map[string]string{"u/web/0": "suspended by ann: look at it"},
		},
		{
			name: "another job was suspended", plan: restarts("u/web/0"),
			events: events(schema.Event{Kind: schema.EventSuspend, Job: "u/ads", Message: "suspended by ann: look at it"}),
			why:    map[string]string{"u/web/0": "the events do not say why"},
		},
		{
			name: "preempted, which was not planned", plan: &plan.Outcome{},
			events: events(ends(schema.EventEvict, "u/low/0", "m1", 1, schema.CausePreempted, "for u/web/0")),
			why:    map[string]string{"u/low/0": "for u/web/0"},
		},
		{
			name: "stopped for the commit before, and ended now", plan: &plan.Outcome{}, stopping: []uint64{7},
			events: events(ends(schema.EventKill, "u/old/0", "m1", 7, schema.CauseRemoved, "stopped: removed")),
		},
		{
			name: "that, and started again", plan: &plan.Outcome{Tasks: []plan.Task{{Name: "u/web/0", Fate: plan.Restarts, From: "m1", To: "m1"}}}, stopping: []uint64{7}, same: 1,
			events: events(ends(schema.EventEvict, "u/web/0", "m1", 7, schema.CauseUpdate, "stopped: new version"), starts("u/web/0", "m1", 8)),
		},
		{
			name: "not yet", plan: restarts("u/web/0"), open: true,
			why: map[string]string{"u/web/0": "it has not happened yet"},
		},
		{
			name: "another master", plan: restarts("u/web/0"), open: true,
			events: events(schema.Event{Kind: schema.EventMaster, Message: "a master leads the cell"}),
			why:    map[string]string{"u/web/0": "another master began to lead"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := history.Compare(tc.plan, history.Window{Records: tc.events, Open: tc.open, Stopping: tc.stopping})
			why := map[string]string{}
			for _, d := range r.Differences {
				why[d.Task] = d.Why
			}
			if tc.why == nil {
				tc.why = map[string]string{}
			}
			if diff := cmp.Diff(tc.why, why); diff != "" || r.Same != tc.same {
				t.Errorf("%d are the same, want %d; why:\n%s", r.Same, tc.same, diff)
			}
		})
	}
}

// TestCompareUntil: what happens after the end is not the commit's.
func TestCompareUntil(t *testing.T) {
	t.Parallel()
	all := append(updated("u/web/0", "m1", 1), ends(schema.EventLost, "u/web/0", "m1", 11, schema.CauseMachineLost, "machine lost"))
	records := events(all...)
	if r := history.Compare(restarts("u/web/0"), history.Window{Records: records, Until: records[2].At}); len(r.Differences) > 0 {
		t.Errorf("before the end: %+v", r.Differences)
	}
	r := history.Compare(restarts("u/web/0"), history.Window{Records: records})
	want := []history.Counts{{Fate: plan.Evicted, Happened: 1}, {Fate: plan.Restarts, Planned: 1}}
	if diff := cmp.Diff(want, r.Counts); diff != "" || len(r.Reasons) != 1 || r.Reasons[0].Tasks != 1 {
		t.Errorf("with all: %+v\n%s", r.Reasons, diff)
	}
}

// TestCompareLarge: what it costs is what a plan and the events have, and not one times the other.
func TestCompareLarge(t *testing.T) {
	t.Parallel()
	const tasks = 100_000
	o, all, stopping := &plan.Outcome{}, make([]schema.Event, 0, 2*tasks), make([]uint64, 0, tasks)
	for i := range tasks {
		name := fmt.Sprintf("u/web/%d", i)
		o.Tasks = append(o.Tasks, plan.Task{Name: name, Fate: plan.Starts, To: "m1"})
		all = append(all, starts(name, "m2", uint64(i)), schema.Event{Kind: schema.EventMachine, Machine: fmt.Sprintf("other%d", i), Message: "joined"})
		stopping = append(stopping, uint64(tasks+i))
	}
	done := make(chan *history.Result, 1)
	go func() { done <- history.Compare(o, history.Window{Records: events(all...), Stopping: stopping}) }()
	select {
	case r := <-done:
		if len(r.Differences) != tasks || len(r.Reasons) != 1 || r.Reasons[0].Why != "machine other0 joined" {
			t.Errorf("%d differences, reasons %v", len(r.Differences), r.Reasons)
		}
	case <-time.After(2 * time.Minute): // one times the other is more than that, on the fastest machine
		t.Fatal("it does not end")
	}
}
