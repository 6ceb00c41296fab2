package snapshot

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// Workload is what a cell is made of if all of it is placed anew.
type Workload struct {
	Machines []placement.Machine // all, as if nothing was wrong with them and nothing ran
	// Held are the tasks of system jobs, on the machines that they belong to.
	Held []placement.Task
	// Asks are those of all other tasks that jobs are to have, but what runs inside allocs,
	// which have room for it, and what is done.
	Asks []placement.Ask
}

// WorkloadOf returns the workload of a cell.
func WorkloadOf(f *facts.Facts) Workload {
	var out Workload
	c := New(f, nil)
	for _, name := range f.Machines() {
		m, _ := c.machineOf(name, nil)
		m.Up, m.Cordoned, m.Draining, m.Conditions = true, false, false, nil
		m.BusyPorts, m.Packages = nil, nil
		out.Machines = append(out.Machines, m)
	}
	empty := placement.NewSnapshot(out.Machines, nil)
	for _, name := range slices.SortedFunc(maps.Keys(f.Base.Jobs), schema.JobName.Compare) {
		want := f.Admitted(name)
		if want == nil || want.AllocSet != "" {
			continue
		}
		a := bareAsk(name.Task(0), want, f.Desired.Policy.Network)
		a.Relations = relationsOf(want)
		if want.Kind == schema.System {
			for i, machine := range empty.Eligible(a) {
				out.Held = append(out.Held, placement.Task{Name: name.Task(i), Machine: machine, Priority: want.Priority, Limit: a.Limit, Ask: &a})
			}
			continue
		}
		done := map[int]bool{}
		for _, t := range f.Tasks(name) {
			done[t.Index] = t.Done != nil
		}
		for i := range want.Tasks {
			if !done[i] {
				a.Name = name.Task(i)
				out.Asks = append(out.Asks, a)
			}
		}
	}
	return out
}
