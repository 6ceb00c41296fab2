package status

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// A machine is empty when nothing runs there but tasks of system jobs, and nothing is on its way to it.
func TestEmptyMachines(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	name := schema.JobName{Cell: "c", User: "u", Job: "web"}
	moves := func(to string) *schema.Cause { return &schema.Cause{Kind: schema.CauseRebalance, To: to} }
	for _, tt := range []struct {
		name  string
		kind  schema.JobKind
		task  schema.TaskRecord
		last  control.Output
		empty bool
	}{
		{name: "it runs there", task: schema.TaskRecord{Machine: "m1"}},
		{name: "it is of a system job", kind: schema.System, task: schema.TaskRecord{Machine: "m1"}, empty: true},
		{name: "it runs elsewhere", task: schema.TaskRecord{Machine: "m2"}, empty: true},
		{name: "it moves there", task: schema.TaskRecord{Machine: "m2", Stop: moves("m1")}},
		{name: "it moves elsewhere", task: schema.TaskRecord{Machine: "m2", Stop: moves("m3")}, empty: true},
		{name: "it has stopped to be there", task: schema.TaskRecord{Causes: []schema.Cause{*moves("m1")}}},
		{name: "it came there and went elsewhere", task: schema.TaskRecord{Machine: "m2", Causes: []schema.Cause{*moves("m1")}}, empty: true},
		{name: "it is done", task: schema.TaskRecord{Done: &schema.Exit{}, Causes: []schema.Cause{*moves("m1")}}, empty: true},
		{name: "others make room there for it", last: control.Output{Claims: map[schema.TaskName]control.Claim{name.Task(0): {Machine: "m1"}}}},
		{name: "it is held for it", task: schema.TaskRecord{Held: &schema.HeldFor{Machine: "m1", Since: now}}},
		{name: "another one is held for it", task: schema.TaskRecord{Held: &schema.HeldFor{Machine: "m2", Since: now}}, empty: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := DescribeInput{State: model.NewState("c"), Observed: model.NewObserved(now), Now: now, Last: tt.last}
			job := schema.Job{Cell: "c", User: "u", Name: "web", Kind: schema.Service, Tasks: 1}
			if tt.kind != "" {
				job.Kind = tt.kind
			}
			digest := schema.DigestOf(&job)
			tt.task.Data, tt.task.Generation = digest, 1
			writes := []model.Write{
				in.State.Document(model.KeyData+string(digest), &job),
				in.State.Document(model.KeyJob+name.Short(), &schema.JobRecord{Name: name, Admitted: digest, Good: digest}),
				in.State.Document(model.KeyChunk+name.Short()+"/0", &schema.Chunk{Job: name, Tasks: []schema.TaskRecord{tt.task}}),
			}
			for _, m := range []string{"m1", "m2", "m3"} {
				info := schema.MachineInfo{Name: m}
				writes = append(writes, in.State.Document(model.KeyMachine+m, &schema.MachineRecord{MachineInfo: info, Joined: now}))
				in.Observed.AddReport(schema.Report{Machine: info}, now)
			}
			if err := in.State.Apply(writes); err != nil {
				t.Fatal(err)
			}
			in.Desired = intent.Of(in.State)
			in.Desired.Policy.Rebalance = &schema.RebalancePolicy{MovesPerHour: 60, EmptyBelow: 20}
			var k Describer
			for range 2 { // what is kept is the same
				if m := k.Describe(in).machines[0]; m.Name != "m1" || m.Empty != tt.empty {
					t.Errorf("machine %s is empty: %t, want %t", m.Name, m.Empty, tt.empty)
				}
			}
			in.Desired = intent.Of(in.State)
			if m := k.Describe(in).machines[0]; m.Empty {
				t.Error("a machine is empty in a cell that empties none")
			}
		})
	}
}

// A machine is explained by its status, and by what becomes of it.
func TestExplainMachine(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	in := DescribeInput{State: model.NewState("c"), Observed: model.NewObserved(now), Now: now}
	info := schema.MachineInfo{Name: "m1", Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 1 << 30, DiskBytes: 1 << 30}}
	if err := in.State.Apply([]model.Write{in.State.Document(model.KeyMachine+"m1", &schema.MachineRecord{MachineInfo: info, Joined: now})}); err != nil {
		t.Fatal(err)
	}
	in.Observed.AddReport(schema.Report{Machine: info}, now)
	in.Desired = intent.Of(in.State)
	in.Desired.Policy.Rebalance = &schema.RebalancePolicy{MovesPerHour: 60, EmptyBelow: 20}
	of := (&Describer{}).Describe(in)
	reserved := &asked{}
	in.Reserved = reserved
	e, known := Explain(in, of, "", "m1")
	if !reserved.is {
		t.Error("what is held back for tasks is not looked at")
	}
	want := []string{"machine m1 is up, and has 0 tasks", "  reserved: 0 of 4 of CPU, 0 bytes of 1 GiB of memory, 0 bytes of 1 GiB of disk", "  emptying: it has no tasks but those of system jobs"}
	if !known || !slices.Equal(e.Lines(), want) {
		t.Errorf("%q, want %q", e.Lines(), want)
	}
	if _, known := Explain(in, of, "", "m2"); known {
		t.Error("a machine is explained that there is not")
	}
}

// asked are reservations that know whether they were asked for.
type asked struct{ is bool }

func (*asked) Reservation(uint64) schema.Resources { return schema.Resources{} }

func (a *asked) Since(int) ([]schema.TaskName, int, bool) {
	a.is = true
	return nil, 1, true
}
