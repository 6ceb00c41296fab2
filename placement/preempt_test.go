package placement_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// oneEach is a cell of machines m0, m1 and so on, each with one task that fills most of it and is of
// a job of its own. The last has a fast disk.
func oneEach(n int) (machines []placement.Machine, tasks []placement.Task) {
	for i := range n {
		disk := "slow"
		if i == n-1 {
			disk = "fast"
		}
		m := placement.Machine{Name: fmt.Sprint("m", i), Up: true, Capacity: schema.Resources{CPUMilli: 4000}, Attributes: map[string]string{"disk": disk}}
		machines = append(machines, m)
		tasks = append(tasks, placement.Task{
			Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("v", i)}.Task(0), Machine: m.Name, Priority: 50, Generation: uint64(i + 1),
			Limit: schema.Resources{CPUMilli: 3000},
		})
	}
	return machines, tasks
}

func preemptor(index int) placement.Ask {
	return placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(index), Priority: 200, Limit: schema.Resources{CPUMilli: 3000}}
}

// Of equal victims those go on whose machine the task wishes to be, also where one of many
// machines is.
func TestEvictWhereWished(t *testing.T) {
	t.Parallel()
	const machines = 1000
	for _, o := range []placement.Options{
		{Preempt: true, NoRelaxed: true}, {Preempt: true, NoRelaxed: true, Graceful: true}, {Preempt: true}, {Preempt: true, Enough: 2},
	} {
		s := placement.NewSnapshot(oneEach(machines))
		s.Configure(o)
		a := preemptor(0)
		a.Preferences = []placement.Preference{{Constraint: placement.Constraint{Attribute: "disk", Op: placement.OpIn, Values: []string{"fast"}}, Weight: 1}}
		d := placement.Place(s, []placement.Ask{a}, 1)[0]
		if len(d.Victims) != 1 || d.Victims[0].Name.Job != fmt.Sprint("v", machines-1) {
			t.Errorf("%+v: evicts %v, want that of the last machine", o, d.Victims)
		}
	}
}
