package reconciler

import (
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// mirror is the cell as placement sees it: a snapshot that follows a draft.
type mirror struct {
	snapshot *placement.Snapshot
}

// snapshot returns the cell as placement sees it, as the draft has it. A task
// that is being stopped holds what it has until its machine has said that it
// is dead.
func (s *step) snapshot() *placement.Snapshot {
	if s.cell != nil {
		return s.cell.snapshot
	}
	machines := make([]placement.Machine, 0, len(s.base.Machines))
	for _, name := range s.base.machineNames() {
		machines = append(machines, s.machineOf(name))
	}
	var tasks []placement.Task
	for _, job := range s.allJobs() {
		records := s.tasks(job)
		for i := range records {
			if records[i].Machine != "" {
				tasks = append(tasks, taskOf(s.draft, job, &records[i]))
			}
		}
	}
	s.cell = &mirror{placement.NewSnapshot(machines, tasks)}
	s.cell.snapshot.Configure(placement.Options{Preempt: true, Graceful: true})
	return s.cell.snapshot
}

// machineOf returns a machine as placement sees it.
func (s *step) machineOf(name string) placement.Machine {
	info := s.base.Machines[name].MachineInfo
	declared := s.base.desired().Machines[name]
	m := placement.Machine{
		Name: name, Capacity: info.Capacity, Ports: info.Ports, Attributes: declared.attributes(&info),
		Up: s.isUp(name), Cordoned: declared.Cordon,
	}
	for _, g := range info.Devices {
		m.Devices = append(m.Devices, placement.Device{Kind: g.Kind, Model: g.Model, Count: g.Count})
	}
	var again time.Time
	m.BusyPorts, again = s.in.Observed.busyPorts(name, s.now)
	s.wake(again)
	m.BusyDevices = s.busyDevices(name)
	return m
}

// taskOf returns a task that has a machine as placement sees it.
func taskOf(d *draft, job schema.JobName, t *schema.TaskRecord) placement.Task {
	data := d.dataOf(t.Data)
	a := askOf(job.Task(t.Index), data)
	return placement.Task{
		Name: a.Name, Machine: t.Machine, Priority: data.Priority, Limit: a.Limit, Ports: t.Ports,
		Stopping: t.Stop != nil, Ask: &a, Devices: usesOf(d.base.Machines[t.Machine], t.Devices),
	}
}

// change takes the change of a task's record; nil stands for none.
func (m *mirror) change(d *draft, job schema.JobName, was, is *schema.TaskRecord) {
	if was != nil && was.Machine != "" && (is == nil || is.Machine != was.Machine) {
		m.snapshot.RemoveTask(job.Task(was.Index), was.Machine, 0)
	}
	if is != nil && is.Machine != "" && (was == nil || was.Machine != is.Machine || was.Data != is.Data || (was.Stop == nil) != (is.Stop == nil)) {
		m.snapshot.SetTask(taskOf(d, job, is))
	}
}
