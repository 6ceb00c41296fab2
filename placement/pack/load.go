package pack

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/placement/workload"
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
			Name: a.Name.JobName, Class: class, Priority: a.Priority, Tasks: 1, Limit: a.Limit, Usage: t.Used, Steady: t.Measured, Devices: a.Devices,
			Arrives: t.Arrives - first, Lasts: max(t.Lasts, time.Second),
		})
	}
	slices.SortStableFunc(out.Jobs, func(a, b workload.Job) int { return cmp.Compare(a.Arrives, b.Arrives) })
	return out, nil
}
