package nodeagent_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestLimits: a change of limits becomes an action, once, and again after a
// while if it was not possible.
func TestLimits(t *testing.T) {
	t.Parallel()
	job := &schema.Job{Name: "web", User: "u", Cell: "local", Kind: schema.Service}
	job.Task.Resources.Resources = schema.Resources{CPUMilli: 2000, RAMBytes: 1 << 30}
	name := job.ID().Task(0)
	held := nodeagent.Held{
		Assignment:   schema.Assignment{Task: name, Generation: 1, Job: job},
		Incarnations: []nodeagent.Incarnation{{Number: 1, Process: nodeagent.Process{Boot: "b", PID: 9, StartedAt: t0, Limited: true, Limits: nodeagent.LimitsOf(job)}}},
	}
	in := nodeagent.Input{Machine: "m1", Boot: "b", Now: t0, Held: []nodeagent.Held{held}, Capacity: schema.Resources{RAMBytes: 4 << 30}}
	want := func(what string, limits ...nodeagent.TaskLimits) nodeagent.Plan {
		t.Helper()
		plan := nodeagent.Decide(in)
		if len(plan.Actions) != len(limits) {
			t.Fatalf("%s: actions %+v, want %+v", what, plan.Actions, limits)
		}
		for i, a := range plan.Actions {
			if a.Kind != nodeagent.Limit || a.Limits != limits[i] {
				t.Errorf("%s: %+v, want %+v", what, a, limits[i])
			}
		}
		return plan
	}
	want("at rest")
	more := *job
	more.AppClass, more.Task.Exceed = schema.ClassBatch, &schema.Exceed{RAM: true}
	in.View = &schema.View{Assignments: []schema.Assignment{{Task: name, Generation: 1, Job: &more}}}
	l := nodeagent.TaskLimits{Processes: schema.DefaultProcesses, Class: schema.ClassBatch, CPUMilli: 2000, QuotaMilli: 2000, RAMBytes: 4 << 30, SoftRAMBytes: 1 << 30}
	want("new version", l)
	in.Held[0].Throttle = 500
	l.QuotaMilli = 500
	want("held back", l)
	c := &in.Held[0].Incarnations[0]
	c.LimitsTried, c.LimitsAt, c.LimitsNote = l, t0, "it cannot be"
	if plan := want("it was tried"); !plan.Wake.Equal(t0.Add(nodeagent.LimitAgain)) {
		t.Errorf("wakes at %v", plan.Wake)
	}
	if note, want := nodeagent.Decide(in).Tasks[0].Note, "it cannot be; "+nodeagent.ThrottleNote; note != want {
		t.Errorf("note %q, want %q", note, want)
	}
	in.Now = t0.Add(nodeagent.LimitAgain)
	want("again", l)
	in.Now = t0.Add(time.Second)
	other := held
	other.Assignment.Task.Index = 1
	in.Held = append(in.Held, other)
	in.View.Assignments = append(in.View.Assignments, schema.Assignment{Task: other.Assignment.Task, Generation: 1, Job: job})
	l.RAMBytes = 3 << 30
	want("another has taken its part of the memory", l)
	c.Limited = false
	want("where no limits can be set")
}
