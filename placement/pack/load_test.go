package pack

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/workload"
	"github.com/musterhq/muster/schema"
)

// TestLoadOfCell: the jobs of a cell are there from the beginning, on machines without what system jobs
// have of them.
func TestLoadOfCell(t *testing.T) {
	t.Parallel()
	job := func(name string) schema.JobName { return schema.JobName{Cell: "c", User: "u", Job: name} }
	size := func(cpu int64) schema.Resources { return schema.Resources{CPUMilli: cpu, RAMBytes: cpu << 20} }
	ssd := []placement.Constraint{{Attribute: "disk", Op: placement.OpNotIn, Values: []string{"hdd"}}}
	subnet := placement.Constraint{Attribute: schema.HasSubnet, Op: placement.OpIn, Values: []string{"true"}}
	cell := Cell{
		Machines: []placement.Machine{{Name: "m1", Capacity: size(4000)}, {Name: "m2", Capacity: size(8000)}},
		Held:     []placement.Task{{Name: job("logs").Task(0), Machine: "m2", Limit: size(500)}, {Name: job("dns").Task(0), Machine: "m2", Limit: size(100)}},
		Asks: []placement.Ask{
			{Name: job("batch").Task(0), Priority: 100, Limit: size(300)},
			{Name: job("web").Task(0), Priority: 200, Limit: size(1000), Constraints: append(slices.Clone(ssd), subnet)},
			{Name: job("web").Task(2), Priority: 200, Limit: size(1000), Constraints: ssd},
		},
	}
	got, err := LoadOfCell(cell)
	if err != nil {
		t.Fatal(err)
	}
	want := &workload.Workload{
		Machines: []placement.Machine{{Name: "m1", Capacity: size(4000)}, {Name: "m2", Capacity: size(7400)}},
		Jobs: []workload.Job{
			{Name: job("batch"), Class: workload.Batch, Priority: 100, Tasks: 1, Limit: size(300)},
			{Name: job("web"), Class: workload.Service, Priority: 200, Tasks: 2, Limit: size(1000), Constraints: ssd},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if cell.Machines[1].Capacity != size(8000) {
		t.Error("the cell itself is written to")
	}
	if _, err := LoadOfCell(Cell{Machines: cell.Machines}); err == nil || err.Error() != "2 machines and 0 tasks: want at least one of each" {
		t.Errorf("a cell without work: %v", err)
	}
}
