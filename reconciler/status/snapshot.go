package status

import (
	"iter"
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Snapshot is a cell at one moment, as its users see it. It is never written to, and
// shares what has not changed with those of other moments: so two are compared by what
// they do not share. Any goroutine may read it.
type Snapshot struct {
	brief    *Status // without tasks
	parts    []*Part
	machines []*MachineStatus
	served   *Served // nil: there are no services, and no network
}

// Part is the part of a Snapshot that is about one job.
type Part struct {
	Job   *JobStatus
	Tasks []TaskStatus
	waits string // what it adds to Waiting; "" if it is as desired
}

// SnapshotOf returns the snapshot with the content of s. Tasks of a job that s does not
// have are put under a job that has only a name.
func SnapshotOf(s *Status) *Snapshot {
	brief := *s
	brief.Tasks = []TaskStatus{}
	out := &Snapshot{brief: &brief}
	rejected := map[string]bool{}
	for i := range s.Rejected {
		rejected[s.Rejected[i].Job] = true
	}
	waits := func(j *JobStatus) string {
		if j.Reason == "" || rejected[j.Name] {
			return ""
		}
		return j.waiting()
	}
	left := s.Tasks
	part := func(j *JobStatus) {
		n := 0
		for n < len(left) && model.JobOf(left[n].Name) == j.Name {
			n++
		}
		out.parts, left = append(out.parts, &Part{Job: j, Tasks: left[:n:n], waits: waits(j)}), left[n:]
	}
	for i := range s.Jobs {
		for len(left) > 0 && model.CompareNames(model.JobOf(left[0].Name), s.Jobs[i].Name) < 0 {
			part(&JobStatus{Name: model.JobOf(left[0].Name)})
		}
		part(&s.Jobs[i])
	}
	for len(left) > 0 {
		part(&JobStatus{Name: model.JobOf(left[0].Name)})
	}
	for i := range s.Machines {
		out.machines = append(out.machines, &s.Machines[i])
	}
	return out
}

// Brief returns the status without tasks, which are most of that of a large cell. It is
// shared.
func (s *Snapshot) Brief() *Status { return s.brief }

// Whole returns the status with all tasks. It costs what their number does, and shares its
// parts.
func (s *Snapshot) Whole() *Status {
	out := *s.brief
	out.Tasks = make([]TaskStatus, 0, s.tasks())
	for _, p := range s.parts {
		out.Tasks = append(out.Tasks, p.Tasks...)
	}
	return &out
}

// tasks returns how many tasks there are.
func (s *Snapshot) tasks() (n int) {
	for _, p := range s.parts {
		n += len(p.Tasks)
	}
	return n
}

// With returns the snapshot after f has changed what is about no single job or machine.
func (s *Snapshot) With(f func(*Status)) *Snapshot {
	brief := *s.brief
	f(&brief)
	return &Snapshot{&brief, s.parts, s.machines, s.served}
}

// WithServices returns the snapshot with other services.
func (s *Snapshot) WithServices(services []*ServiceStatus) *Snapshot {
	return &Snapshot{s.brief, s.parts, s.machines, &Served{s.Network(), services}}
}

// Parts are those of all jobs, by name.
func (s *Snapshot) Parts() []*Part { return s.parts }

// Jobs are all jobs, by name.
func (s *Snapshot) Jobs() iter.Seq[*JobStatus] {
	return func(yield func(*JobStatus) bool) {
		for _, p := range s.parts {
			if !yield(p.Job) {
				return
			}
		}
	}
}

// Tasks are all tasks, by name.
func (s *Snapshot) Tasks() iter.Seq[*TaskStatus] {
	return func(yield func(*TaskStatus) bool) {
		for _, p := range s.parts {
			for i := range p.Tasks {
				if !yield(&p.Tasks[i]) {
					return
				}
			}
		}
	}
}

// Machines are all machines, by name. The list is shared.
func (s *Snapshot) Machines() []*MachineStatus { return s.machines }

// Services are all services, by user and name. The list is shared.
func (s *Snapshot) Services() []*ServiceStatus {
	if s.served == nil {
		return nil
	}
	return s.served.Services
}

// Network is that of the cell; nil if it has none. It is shared.
func (s *Snapshot) Network() *schema.CellNetwork {
	if s.served == nil {
		return nil
	}
	return s.served.Network
}

// Part returns the part of a job, nil if there is none.
func (s *Snapshot) Part(job string) *Part {
	i, ok := slices.BinarySearchFunc(s.parts, job, func(p *Part, name string) int { return model.CompareNames(p.Job.Name, name) })
	if !ok {
		return nil
	}
	return s.parts[i]
}
