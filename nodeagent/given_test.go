package nodeagent_test

import (
	"strconv"
	"testing"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestVersionsAreKept: a turn in which nothing has changed does not hash the files of tasks.
func TestVersionsAreKept(t *testing.T) { //nolint:paralleltest // it counts allocations
	job := &schema.Job{Name: "web", User: "u", Cell: "c", Kind: schema.Service, Task: schema.TaskSpec{
		Process: schema.Process{Command: []string{"serve"}},
		Files:   map[string]schema.TaskFile{},
	}}
	const files = 50
	for i := range files {
		job.Task.Files[strconv.Itoa(i)] = schema.TaskFile{Content: "x", OnChange: schema.ChangeSignal}
	}
	a := schema.Assignment{Task: job.ID().Task(0), Generation: 7, Data: schema.DigestOf(job), Job: job}
	in := nodeagent.Input{
		Machine: "m1", Boot: "boot-1", View: &schema.View{Assignments: []schema.Assignment{a}},
		Held: []nodeagent.Held{{Assignment: a, Incarnations: []nodeagent.Incarnation{{
			Number: 1, Process: nodeagent.Process{Boot: "boot-1", PID: 42}, Given: nodeagent.GivenOf(&job.Task),
		}}}},
	}
	allocations := func() float64 {
		return testing.AllocsPerRun(20, func() { nodeagent.Decide(in) })
	}
	anew := allocations()
	in.Versions = &nodeagent.Versions{}
	if kept := allocations(); kept > anew-files {
		t.Errorf("a decision makes %.0f allocations where versions are kept, and %.0f where they are not", kept, anew)
	}
	changed := *job
	changed.Task.Files = map[string]schema.TaskFile{"0": {Content: "y", OnChange: schema.ChangeSignal}}
	b := a
	b.Job, b.Data = &changed, schema.DigestOf(&changed)
	in.View = &schema.View{Assignments: []schema.Assignment{b}}
	if plan := nodeagent.Decide(in); len(plan.Actions) != 1 || plan.Actions[0].Kind != nodeagent.Renew {
		t.Errorf("actions %+v, want a renewal", plan.Actions)
	}
}
