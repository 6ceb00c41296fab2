package status

import "github.com/musterhq/muster/reconciler/model"

// Counted returns the totals of s: its Totals, or else the counts of its lists.
func (s *Status) Counted() Totals {
	if s.Totals != nil {
		return *s.Totals
	}
	var t Totals
	t.Machines.Total, t.Jobs.Total = len(s.Machines), len(s.Jobs)
	for i := range s.Machines {
		switch model.Health(s.Machines[i].Health) {
		case model.HealthUp:
			t.Machines.Up++
		case model.HealthSilent:
			t.Machines.Silent++
		case model.HealthLost:
			t.Machines.Lost++
		}
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Reason == "" {
			t.Jobs.AsDesired++
		}
		t.Tasks.Desired += j.Desired
		t.Tasks.Running += j.Running
		t.Tasks.Pending += j.Pending
		t.Tasks.Failed += j.Failed
		t.Tasks.Unknown += j.Unknown
		t.Tasks.Done += j.Done
	}
	return t
}

// Shortened returns s with its totals, and of the jobs and the machines of which there is
// nothing to say, and of the machines with nothing but notes, the first so many only.
func (s *Status) Shortened(most int) *Status {
	out, totals := *s, s.Counted()
	out.Totals = &totals
	jobs, machines, noted := most, most, most
	out.Jobs = keep(s.Jobs, func(j *JobStatus) bool {
		if j.plain() {
			jobs--
		}
		return !j.plain() || jobs >= 0
	})
	out.Machines = keep(s.Machines, func(m *MachineStatus) bool {
		left := &noted
		if m.Plain() {
			left = &machines
		}
		*left--
		return m.NotReady() || *left >= 0
	})
	return &out
}

// plain reports whether there is nothing to say of a job but that it is as desired.
func (j *JobStatus) plain() bool {
	return j.Reason == "" && j.Crashes == "" && j.Suspended == "" && j.Held == ""
}

// Plain reports whether there is nothing to say of a machine but that it is up.
func (m *MachineStatus) Plain() bool { return !m.NotReady() && len(m.Notes) == 0 }

// NotReady reports whether a machine is not up, is draining or cordoned, or has
// conditions: it takes no tasks, or not all.
func (m *MachineStatus) NotReady() bool {
	return m.Health != string(model.HealthUp) || m.Draining != nil || m.Cordoned || len(m.Conditions) > 0
}
