package nodeagent_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestBinding: who had to wait on a node gets all cores for a while, each time for longer,
// until it has long done well.
func TestBinding(t *testing.T) {
	t.Parallel()
	var b nodeagent.Binding
	now := t0
	if b = b.Next(now, false); b != (nodeagent.Binding{}) {
		t.Fatalf("it does well, and has %+v", b)
	}
	for _, want := range []float64{5, 10, 20, 40, 80, 80} {
		b = b.Next(now, true)
		if got := b.Until.Sub(now).Minutes(); got != want {
			t.Errorf("loose for %v minutes, want %v", got, want)
		}
		now = b.Until
	}
	if b = b.Next(now.Add(nodeagent.LooseMost-1), false); b == (nodeagent.Binding{}) {
		t.Error("its record is clean too early")
	}
	if b = b.Next(now.Add(nodeagent.LooseMost), false); b != (nodeagent.Binding{}) {
		t.Errorf("its record is %+v", b)
	}
	b = b.Next(now, true)
	if early := now.Add(-24 * time.Hour); b.Next(early, false).Until.After(early) {
		t.Error("it stays loose after the clock was set back")
	}
}

// TestNear: which tasks are bound to a node, and that one which had to wait there is not
// until its time has come.
func TestNear(t *testing.T) {
	t.Parallel()
	job := &schema.Job{Name: "web", User: "u", Cell: "local", Kind: schema.Service}
	job.Task.Resources.Resources = schema.Resources{CPUMilli: 2000, RAMBytes: 1 << 30}
	for _, c := range []struct {
		name string
		set  func(*schema.Job)
		near bool
		need bool
	}{
		{"latency-sensitive", func(*schema.Job) {}, true, false},
		{"it says none", func(j *schema.Job) { j.Task.Resources.NUMA = schema.NUMANone }, false, false},
		{"batch", func(j *schema.Job) { j.AppClass = schema.ClassBatch }, false, false},
		{"batch that says prefer", func(j *schema.Job) { j.AppClass, j.Task.Resources.NUMA = schema.ClassBatch, schema.NUMAPrefer }, true, false},
		{"cores of its own", func(j *schema.Job) { j.Task.Resources.WholeCores = true }, false, false},
		{"cores of its own, of one node", func(j *schema.Job) {
			j.Task.Resources.WholeCores, j.Task.Resources.NUMA = true, schema.NUMARequire
		}, false, true},
		{"an alloc", func(j *schema.Job) { j.Kind = schema.Allocs }, false, false},
	} {
		j := *job
		c.set(&j)
		if l := nodeagent.LimitsOf(&j); l.Near != c.near || l.Require != c.need {
			t.Errorf("%s: near %t, required %t", c.name, l.Near, l.Require)
		}
	}
	held := nodeagent.Held{
		Assignment:   schema.Assignment{Task: job.ID().Task(0), Generation: 1, Job: job},
		Incarnations: []nodeagent.Incarnation{{Number: 1, Process: nodeagent.Process{Boot: "b", PID: 9, StartedAt: t0, Limited: true, Limits: nodeagent.LimitsOf(job)}}},
		Nodes:        "1", Binding: nodeagent.Binding{Until: t0.Add(time.Minute), For: time.Minute},
	}
	in := nodeagent.Input{Machine: "m1", Boot: "b", Now: t0, Held: []nodeagent.Held{held}, View: &schema.View{Assignments: []schema.Assignment{held.Assignment}}}
	plan := nodeagent.Decide(in)
	if len(plan.Actions) != 1 || !plan.Actions[0].Limits.Loose || !plan.Wake.Equal(held.Binding.Until) {
		t.Errorf("while it may have all cores: %+v, wakes at %v", plan.Actions, plan.Wake)
	}
	in.Now = held.Binding.Until
	if plan := nodeagent.Decide(in); len(plan.Actions) > 0 {
		t.Errorf("after that: %+v", plan.Actions)
	}
	for nodes, want := range map[string]string{"1": "it runs on cores of NUMA node 1", "0,2,3": "it runs on cores of NUMA nodes 0, 2 and 3", "": ""} {
		in.Held[0].Nodes = nodes
		if got := nodeagent.Decide(in).Tasks[0].Note; got != want {
			t.Errorf("bound to %q: %q, want %q", nodes, got, want)
		}
	}
}

// TestAgentNear: on a machine with several NUMA nodes tasks are measured though all are of
// one rank, and one that waits on its node is let go.
func TestAgentNear(t *testing.T) {
	t.Parallel()
	web := assignment("web", 0, 1, schema.Service)
	for nodes, want := range map[string]int{"1": 0, "2": 1} {
		machine := schema.MachineInfo{Name: "m1", Boot: "boot-1", Attributes: map[string]string{schema.AttributeNUMANodes: nodes}}
		d := newDriver(nodeagent.Found{})
		d.agent = nodeagent.NewAgent(nodeagent.AgentConfig{Cell: "local", Machine: machine}, nodeagent.Found{}, t0)
		d.assign(t, 1, web)
		d.decide()
		run := incarnationOf(web.Task, 1, 1)
		limits := nodeagent.LimitsOf(web.Job)
		process := nodeagent.Process{Boot: "boot-1", PID: 7, StartedAt: d.now, Limited: true, Limits: limits}
		d.agent.Started(run, &nodeagent.StartOutcome{Written: true, Process: process}, d.now)
		d.decide()
		if len(d.turn.CPU) != want {
			t.Fatalf("with %s nodes %d tasks are measured, want %d", nodes, len(d.turn.CPU), want)
		}
		if want == 0 {
			continue
		}
		measured := func(after time.Duration, waited time.Duration) {
			d.now = d.now.Add(after)
			use := d.turn.CPU[0]
			use.Used = nodeagent.CPUTime{Waited: waited, Nodes: "1"}
			d.agent.Measured(d.now, []nodeagent.CPUUse{use})
		}
		measured(0, 0)
		measured(2*time.Second, 100*time.Millisecond)
		d.want(t, "it hardly waits")
		if note := d.turn.Report.Tasks[0].Note; note != "it runs on cores of NUMA node 1" {
			t.Errorf("note %q", note)
		}
		measured(2*time.Second, 400*time.Millisecond)
		d.want(t, "it waits", "limit u/web/0")
		if !d.acted.Limits.Loose {
			t.Error("it stays on its node")
		}
	}
}
