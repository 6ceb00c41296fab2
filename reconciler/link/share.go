package link

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// share has a report refer to what is in the one before, and in the view, instead of to copies
// of its own: the last report of each machine is kept, and most of it is the same again.
func share(r, last *schema.Report, view []schema.Assignment) {
	before := last.Tasks
	shareMachine(&r.Machine, &last.Machine)
	for i := range r.Tasks {
		t := &r.Tasks[i]
		if was := find(before, i, func(was *schema.TaskStatus) bool { return was.Generation == t.Generation && was.Task == t.Task }); was != nil {
			if was.Same(t) {
				*t = *was
				continue
			}
			t.Task = was.Task
			shareString(&t.Data, was.Data)
			t.Ports = sharedPorts(t.Ports, was.Ports)
		} else if a := find(view, i, func(a *schema.Assignment) bool { return a.Generation == t.Generation && a.Task == t.Task }); a != nil {
			t.Task = a.Task
			shareString(&t.Data, a.Data)
			t.Ports = sharedPorts(t.Ports, a.Ports)
		}
	}
}

// shareUsage has a sample refer to what the machine has reported.
func shareUsage(u *schema.MachineUsage, reported []schema.TaskStatus) {
	for i := range u.Tasks {
		t := &u.Tasks[i]
		if was := find(reported, i, func(was *schema.TaskStatus) bool { return was.Generation == t.Generation && was.Task == t.Task }); was != nil {
			t.Task = was.Task
		}
	}
}

// find returns the one that is wanted, which most likely is at an index; nil if there is none.
func find[T any](list []T, at int, want func(*T) bool) *T {
	if at < len(list) && want(&list[at]) {
		return &list[at]
	}
	for i := range list {
		if want(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

func shareMachine(m, known *schema.MachineInfo) {
	m.Name = known.Name // of which the session is
	shareString(&m.Boot, known.Boot)
	shareString(&m.AgentVersion, known.AgentVersion)
	shareString(&m.ID, known.ID)
	shareString(&m.Address, known.Address)
	shareString(&m.Shares, known.Shares)
	if slices.EqualFunc(m.Devices, known.Devices, schema.DeviceGroup.Equal) {
		m.Devices = known.Devices
	}
	if maps.Equal(m.Attributes, known.Attributes) {
		m.Attributes = known.Attributes
	}
	if slices.Equal(m.Notes, known.Notes) {
		m.Notes = known.Notes
	}
}

func shareString[S ~string](s *S, known S) {
	if *s == known {
		*s = known
	}
}

func sharedPorts(p, known schema.Ports) schema.Ports {
	if slices.Equal(p, known) {
		return known
	}
	return p
}
