package control

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// mirror is the cell as placement sees it: a snapshot that follows the state and,
// within a step, its draft. It is kept from step to step, see Memo.
type mirror struct {
	snapshot *placement.Snapshot
	chunks   map[model.ChunkName]*schema.Chunk // whose tasks the snapshot has
	machines map[string]seenMachine
}

// seenMachine is a machine of the snapshot, and what it was made of.
type seenMachine struct {
	record  *schema.MachineRecord
	heard   *model.LastReport
	desired *intent.Desired
	up      bool
	again   time.Time // when a port of it may be tried again, zero if never
	machine placement.Machine
}

// snapshot returns the cell as placement sees it, as the draft has it. A task
// that is being stopped holds what it has until its machine has said that it
// is dead.
func (s *step) snapshot() *placement.Snapshot {
	if s.cell != nil {
		return s.cell.snapshot
	}
	m := s.memo.mirror
	if m == nil || !s.sameMachines(m) {
		m = s.newMirror()
		s.memo.mirror = m
	} else {
		for _, name := range s.names {
			s.mirrorMachine(m, name)
		}
		s.mirrorTasks(m)
	}
	s.cell = m
	return m.snapshot
}

// without returns a fork of the cell as placement sees it that tasks have left. The
// caller releases it.
func (s *step) without(tasks ...victim) *placement.Snapshot {
	fork := s.snapshot().Fork()
	for _, t := range tasks {
		fork.RemoveTask(t.task, t.machine, 0)
	}
	return fork
}

// sameMachines reports whether the mirror has the machines of the cell, with
// the devices by which tasks' devices are counted.
func (s *step) sameMachines(m *mirror) bool {
	if len(m.machines) != len(s.names) {
		return false
	}
	for _, name := range s.names {
		seen, ok := m.machines[name]
		if !ok || !slices.Equal(seen.record.Devices, s.base.Machines[name].Devices) {
			return false
		}
	}
	return true
}

// newMirror makes a mirror from nothing.
func (s *step) newMirror() *mirror {
	m := &mirror{chunks: map[model.ChunkName]*schema.Chunk{}, machines: make(map[string]seenMachine, len(s.names))}
	machines := make([]placement.Machine, 0, len(s.names))
	for _, name := range s.names {
		seen := s.seen(name)
		m.machines[name] = seen
		machines = append(machines, seen.machine)
	}
	var tasks []placement.Task
	for _, name := range s.chunkNames() {
		c := s.chunk(name)
		m.chunks[name] = c
		for i := range c.Tasks {
			if c.Tasks[i].Machine != "" {
				tasks = append(tasks, taskOf(s.draft, name.Job, &c.Tasks[i]))
			}
		}
	}
	m.snapshot = placement.NewSnapshot(machines, tasks)
	m.snapshot.Configure(placement.Options{Preempt: true, Graceful: true})
	return m
}

// mirrorMachine takes over what changed of a machine.
func (s *step) mirrorMachine(m *mirror, name string) {
	was := m.machines[name]
	if was.record == s.base.Machines[name] && was.heard == s.in.Observed.Last(name) && was.up == s.isUp(name) &&
		was.desired == s.desired && (was.again.IsZero() || s.now.Before(was.again)) {
		s.wake(was.again)
		return
	}
	is := s.seen(name)
	m.machines[name] = is
	if !reflect.DeepEqual(was.machine, is.machine) {
		m.snapshot.SetMachine(is.machine)
	}
}

// mirrorTasks takes over what changed of tasks.
func (s *step) mirrorTasks(m *mirror) {
	var names []model.ChunkName
	for name, c := range s.base.Chunks {
		if s.chunks[name] == nil && m.chunks[name] != c {
			names = append(names, name)
		}
	}
	for name := range s.chunks {
		names = append(names, name)
	}
	for name := range m.chunks {
		if s.chunks[name] == nil && s.base.Chunks[name] == nil {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, model.ChunkName.Compare)
	for _, name := range names {
		m.compare(s.draft, name, s.chunk(name))
	}
}

// compare takes over a chunk, of which the mirror may have an older version.
func (m *mirror) compare(d *draft, name model.ChunkName, is *schema.Chunk) {
	var old, next []schema.TaskRecord
	if was := m.chunks[name]; was != nil {
		old = was.Tasks
	}
	if is != nil {
		next = is.Tasks
		m.chunks[name] = is
	} else {
		delete(m.chunks, name)
	}
	for len(old) > 0 || len(next) > 0 {
		switch {
		case len(next) == 0 || len(old) > 0 && old[0].Index < next[0].Index:
			m.change(d, name.Job, &old[0], nil)
			old = old[1:]
		case len(old) == 0 || next[0].Index < old[0].Index:
			m.change(d, name.Job, nil, &next[0])
			next = next[1:]
		default:
			m.change(d, name.Job, &old[0], &next[0])
			old, next = old[1:], next[1:]
		}
	}
}

// remember leaves the mirror for the next step: as the draft is, without what
// was only claimed.
func (s *step) remember() {
	if s.cell == nil {
		return
	}
	s.cell.snapshot.ClearClaims()
	s.cell.snapshot.SetBudgets(nil)
	for name, c := range s.chunks {
		s.cell.chunks[name] = c
	}
}

// chunkNames returns the names of all chunks as the draft has them, sorted.
func (s *step) chunkNames() []model.ChunkName {
	names := slices.Collect(maps.Keys(s.base.Chunks))
	for name := range s.chunks {
		if s.base.Chunks[name] == nil {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, model.ChunkName.Compare)
	return names
}

// seen looks at a machine.
func (s *step) seen(name string) seenMachine {
	out := seenMachine{
		record: s.base.Machines[name], heard: s.in.Observed.Last(name), desired: s.desired, up: s.isUp(name),
	}
	out.machine, out.again = s.machineOf(name)
	return out
}

// machineOf returns a machine as placement sees it, and when a port of it may be
// tried again.
func (s *step) machineOf(name string) (m placement.Machine, again time.Time) {
	info := s.base.Machines[name].MachineInfo
	declared := s.machineSpec(name)
	m = placement.Machine{
		Name: name, Capacity: info.Capacity, Ports: info.Ports, Attributes: declared.Attributes,
		Up: s.isUp(name), Cordoned: declared.Closed(),
	}
	for _, g := range info.Devices {
		m.Devices = append(m.Devices, placement.Device{Kind: g.Kind, Model: g.Model, Count: g.Count})
	}
	for _, c := range s.in.Observed.Conditions(name) {
		m.Conditions = append(m.Conditions, c.Kind)
	}
	m.BusyPorts, again = s.in.Observed.BusyPorts(name, s.now)
	s.wake(again)
	m.BusyDevices = s.busyDevices(name)
	return m, again
}

// taskOf returns a task that has a machine as placement sees it.
func taskOf(d *draft, job schema.JobName, t *schema.TaskRecord) placement.Task {
	data := d.dataOf(t.Data)
	a := bareAsk(job.Task(t.Index), data)
	p := placement.Task{
		Name: a.Name, Machine: t.Machine, Priority: data.Priority, Limit: a.Limit, Ports: t.Ports,
		Stopping: t.Stop != nil, Ask: &a, Devices: usesOf(d.base.Machines[t.Machine], t.Devices), IsAlloc: a.IsAlloc,
	}
	if t.Alloc != nil {
		p.Alloc = t.Alloc.Of(job)
	}
	return p
}

// change takes the change of a task's record; nil stands for none.
func (m *mirror) change(d *draft, job schema.JobName, was, is *schema.TaskRecord) {
	if was != nil && was.Machine != "" && (is == nil || is.Machine != was.Machine) {
		m.snapshot.RemoveTask(job.Task(was.Index), was.Machine, 0)
	}
	if is != nil && is.Machine != "" && (was == nil || was.Machine != is.Machine || was.Generation != is.Generation || was.Data != is.Data || (was.Stop == nil) != (is.Stop == nil)) {
		m.snapshot.SetTask(taskOf(d, job, is))
	}
}
