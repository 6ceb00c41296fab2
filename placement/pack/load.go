package pack

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/workload"
	"github.com/musterhq/muster/schema"
)

// LoadOf returns a trace as a workload: its tasks arrive and last as the trace says, from the
// first arrival on. Each is a job. The name is that of the file of tasks, for errors.
func LoadOf(nodes []Node, tasksFile string, tasks []Task) (*workload.Workload, error) {
	cell, tasks := WorkOf(nodes, tasks)
	if len(tasks) == 0 {
		return nil, fmt.Errorf("%s: %w", tasksFile, errAllFailed)
	}
	first := slices.MinFunc(tasks, func(a, b Task) int { return cmp.Compare(a.Arrives, b.Arrives) }).Arrives
	out := &workload.Workload{Machines: cell.Machines}
	for i := range tasks {
		t, a := &tasks[i], &cell.Asks[i]
		if !t.Timed {
			return nil, fmt.Errorf("%s:%d: task %s has no creation_time and deletion_time", tasksFile, t.Line, t.Name)
		}
		class := workload.Batch
		if a.Priority.Prod() {
			class = workload.Service
		}
		out.Jobs = append(out.Jobs, workload.Job{
			Name: a.Name.JobName, Class: class, Priority: a.Priority, Tasks: 1, Limit: a.Limit, Usage: t.Used, Steady: t.Measured, Devices: a.Devices, FirstOf: a.FirstOf,
			Arrives: t.Arrives - first, Lasts: max(t.Lasts, time.Second),
		})
	}
	slices.SortStableFunc(out.Jobs, func(a, b workload.Job) int { return cmp.Compare(a.Arrives, b.Arrives) })
	return out, nil
}

// LoadOfCell returns the work of a cell as a workload: all of it is there from the beginning, and runs
// without end. What system jobs take of each machine is taken off its capacity. A workload knows
// nothing of ports and task networks, preferences, alternatives of constraints, taints, of what tasks want of each
// other and of domains: that is left out.
func LoadOfCell(c Cell) (*workload.Workload, error) {
	if len(c.Machines) == 0 || len(c.Asks) == 0 {
		return nil, fmt.Errorf("%s and %s: want at least one of each", schema.Count(len(c.Machines), "machine"), schema.Count(len(c.Asks), "task"))
	}
	held := map[string]schema.Resources{}
	for i := range c.Held {
		t := &c.Held[i]
		held[t.Machine] = held[t.Machine].Add(t.Limit)
	}
	out := &workload.Workload{Machines: slices.Clone(c.Machines)}
	for i := range out.Machines {
		m := &out.Machines[i]
		m.Capacity = m.Capacity.Sub(held[m.Name])
	}
	for i := range c.Asks {
		a := &c.Asks[i]
		if n := len(out.Jobs); n > 0 && out.Jobs[n-1].Name == a.Name.JobName {
			out.Jobs[n-1].Tasks++
			continue
		}
		class := workload.Batch
		if a.Priority.Prod() {
			class = workload.Service
		}
		out.Jobs = append(out.Jobs, workload.Job{
			Name: a.Name.JobName, Class: class, Priority: a.Priority, Tasks: 1, Limit: a.Limit, Constraints: withoutNetwork(a.Constraints), Devices: a.Devices, FirstOf: a.FirstOf,
		})
	}
	return out, nil
}

// withoutNetwork returns constraints without that on a network of the cell, which a machine alone
// does not have.
func withoutNetwork(all []placement.Constraint) []placement.Constraint {
	return slices.DeleteFunc(slices.Clone(all), func(c placement.Constraint) bool { return c.Attribute == schema.HasSubnet })
}
