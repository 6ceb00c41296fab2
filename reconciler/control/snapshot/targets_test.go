package snapshot

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Targets are percent of the tasks that a job is to have, also where its record, or a newer
// version, says another number than the data that a task runs: those of a task that asks, and of
// one that is there and would ask again.
func TestTargetsOfCount(t *testing.T) {
	t.Parallel()
	job := func(tasks int) *schema.Job {
		return &schema.Job{
			Cell: "c", User: "u", Name: "web", Kind: schema.Service, Tasks: tasks,
			Spread: &schema.Spread{By: "zone", Targets: map[string]int{"z1": 50, "z2": 30, "z3": 20}},
		}
	}
	old, count := job(2), 20
	for _, x := range []struct {
		admitted *schema.Job
		count    *int
		want     []int
	}{
		{old, nil, []int{1, 1, 0}},
		{old, &count, []int{10, 6, 4}},
		{job(10), nil, []int{5, 3, 2}},
	} {
		state := model.NewState("c")
		digest, admitted := schema.DigestOf(old), schema.DigestOf(x.admitted)
		name := old.ID()
		if err := state.Apply([]model.Write{
			state.Document(model.KeyMachine+"m", &schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: "m"}}),
			state.Document(model.KeyData+string(digest), old), state.Document(model.KeyData+string(admitted), x.admitted),
			state.Document(model.KeyJob+name.Short(), &schema.JobRecord{Name: name, Admitted: admitted, Count: x.count}),
			state.Document(model.KeyChunk+name.Short()+"/0", &schema.Chunk{Job: name, Tasks: []schema.TaskRecord{{Generation: 1, Machine: "m", Data: digest, At: now}}}),
		}); err != nil {
			t.Fatal(err)
		}
		c := New(facts.New(facts.Stored(state), &intent.Desired{}, model.NewObserved(now), now, nil), nil)
		a, _ := c.Placement(Ask{Task: name.Task(1), Job: old, Data: digest})
		held := placement.TasksOn(c.Snapshot(), "m")
		for who, targets := range map[string][]placement.Target{"asks": a.Targets, "is there": held[0].Ask.Targets} {
			want := []placement.Target{{Value: "z1", Tasks: x.want[0]}, {Value: "z2", Tasks: x.want[1]}, {Value: "z3", Tasks: x.want[2]}}
			if d := cmp.Diff(want, targets); d != "" {
				t.Errorf("count %v, one that %s (-want +got):\n%s", x.count, who, d)
			}
		}
	}
}
