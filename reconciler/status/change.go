package status

import (
	"errors"
	"reflect"

	"github.com/musterhq/muster/reconciler/model"
)

// Change is the difference between a Snapshot and one before it, for another master that
// has the earlier one. It is sent as JSON.
type Change struct {
	// Begins says that it is the difference from nothing.
	Begins bool `json:"begins,omitempty"`
	// Version is that of the Snapshot, and Since that of the one before.
	Version uint64 `json:"version"`
	Since   uint64 `json:"since,omitempty"`
	// Head is the rest of the status, without jobs, tasks and machines.
	Head Status `json:"head"`
	// Jobs and Machines are those that are new or have changed, by name; Gone are the names
	// of those that were removed.
	Jobs         []JobChange     `json:"jobs,omitempty"`
	GoneJobs     []string        `json:"goneJobs,omitempty"`
	Machines     []MachineStatus `json:"machines,omitempty"`
	GoneMachines []string        `json:"goneMachines,omitempty"`
	// Served is all of services, if any of it has changed; nil: it is that of before.
	Served *Served `json:"served,omitempty"`
}

// JobChange is what has changed of a job and its tasks.
type JobChange struct {
	Name string `json:"name"`
	// Job is nil if it has not changed.
	Job *JobStatus `json:"job,omitempty"`
	// Tasks are those that are new or have changed, by name, and GoneTasks the names of
	// those that were removed.
	Tasks     []TaskStatus `json:"tasks,omitempty"`
	GoneTasks []string     `json:"goneTasks,omitempty"`
}

// errOtherBase says that a Change does not follow the Snapshot that it is applied to.
var errOtherBase = errors.New("the change follows another snapshot")

// ChangeOf returns the difference between two Snapshots; was may be nil. It costs a look at
// each job and machine, and at each task of the jobs that the two do not share.
func ChangeOf(was, is *Snapshot) *Change {
	c := &Change{Version: is.brief.Version, Head: *is.brief}
	c.Head.Jobs, c.Head.Tasks, c.Head.Machines = nil, nil, nil
	if was == nil {
		c.Begins, was = true, new(Snapshot)
	} else {
		c.Since = was.brief.Version
	}
	if was.served != is.served {
		c.Served = is.served
	}
	Merge(was.parts, is.parts, func(p *Part) string { return p.Job.Name }, func(a, b *Part) {
		switch {
		case b == nil:
			c.GoneJobs = append(c.GoneJobs, a.Job.Name)
		case a == nil:
			c.Jobs = append(c.Jobs, JobChange{Name: b.Job.Name, Job: b.Job, Tasks: b.Tasks})
		case a != b:
			if x := changeOfJob(a, b); !x.empty() {
				c.Jobs = append(c.Jobs, x)
			}
		}
	})
	Merge(was.machines, is.machines, func(m *MachineStatus) string { return m.Name }, func(a, b *MachineStatus) {
		switch {
		case b == nil:
			c.GoneMachines = append(c.GoneMachines, a.Name)
		case a == nil || a != b && !reflect.DeepEqual(a, b):
			c.Machines = append(c.Machines, *b)
		}
	})
	return c
}

func changeOfJob(was, is *Part) JobChange {
	x := JobChange{Name: is.Job.Name}
	if !reflect.DeepEqual(was.Job, is.Job) {
		x.Job = is.Job
	}
	name := func(t *TaskStatus) string { return t.Name }
	Merge(Pointers(was.Tasks), Pointers(is.Tasks), name, func(a, b *TaskStatus) {
		switch {
		case b == nil:
			x.GoneTasks = append(x.GoneTasks, a.Name)
		case a == nil || !reflect.DeepEqual(a, b):
			x.Tasks = append(x.Tasks, *b)
		}
	})
	return x
}

func (x *JobChange) empty() bool { return x.Job == nil && len(x.Tasks) == 0 && len(x.GoneTasks) == 0 }

// Changed returns s with a Change applied; s is nil for a Change that begins. It shares
// with s what is the same. It errs when the Change does not follow s.
func (s *Snapshot) Changed(c *Change) (*Snapshot, error) {
	switch {
	case c.Begins:
		s = &Snapshot{brief: new(Status)}
	case s == nil || s.brief.Version != c.Since:
		return nil, errOtherBase
	}
	brief := c.Head
	out := &Snapshot{brief: &brief}
	jobs := make([]*JobChange, len(c.Jobs))
	for i := range c.Jobs {
		jobs[i] = &c.Jobs[i]
	}
	fault := error(nil)
	parts := listOf[Part, JobChange]{
		func(p *Part) string { return p.Job.Name }, func(x *JobChange) string { return x.Name },
		func(p *Part, x *JobChange) *Part {
			next := &Part{Job: x.Job}
			if p == nil {
				p = new(Part)
			}
			if next.Job == nil {
				next.Job = p.Job
			}
			if next.Job == nil {
				fault = errOtherBase
				next.Job = &JobStatus{Name: x.Name}
			}
			next.Tasks = tasksOf(p.Tasks, x)
			return next
		},
	}
	out.parts = parts.after(s.parts, jobs, c.GoneJobs)
	machine := func(m *MachineStatus) string { return m.Name }
	machines := listOf[MachineStatus, MachineStatus]{machine, machine, func(_, m *MachineStatus) *MachineStatus { return m }}
	out.machines = machines.after(s.machines, Pointers(c.Machines), c.GoneMachines)
	if out.served = s.served; c.Served != nil {
		out.served = c.Served
	}
	brief.Version, brief.Tasks = c.Version, []TaskStatus{}
	brief.Jobs, brief.Machines = make([]JobStatus, len(out.parts)), make([]MachineStatus, len(out.machines))
	for i, p := range out.parts {
		brief.Jobs[i] = *p.Job
	}
	for i, m := range out.machines {
		brief.Machines[i] = *m
	}
	return out, fault
}

// tasksOf returns the tasks of a job after a change.
func tasksOf(was []TaskStatus, x *JobChange) []TaskStatus {
	if len(x.Tasks) == 0 && len(x.GoneTasks) == 0 {
		return was
	}
	name := func(t *TaskStatus) string { return t.Name }
	list := listOf[TaskStatus, TaskStatus]{name, name, func(_, t *TaskStatus) *TaskStatus { return t }}
	after := list.after(Pointers(was), Pointers(x.Tasks), x.GoneTasks)
	out := make([]TaskStatus, len(after))
	for i, t := range after {
		out[i] = *t
	}
	return out
}

// listOf is a list by name, and changes to it, by name too.
type listOf[T, C any] struct {
	name   func(*T) string
	nameOf func(*C) string
	next   func(was *T, news *C) *T // was is nil for one that is new
}

// after returns the list with changes applied: items that are new or have changed, and
// names of those that are gone.
func (l *listOf[T, C]) after(was []*T, news []*C, gone []string) []*T {
	if len(news) == 0 && len(gone) == 0 {
		return was
	}
	out := make([]*T, 0, len(was)+len(news))
	for len(was) > 0 || len(news) > 0 {
		c := 1
		switch {
		case len(news) == 0:
			c = -1
		case len(was) > 0:
			c = model.CompareNames(l.name(was[0]), l.nameOf(news[0]))
		}
		switch {
		case c > 0:
			out, news = append(out, l.next(nil, news[0])), news[1:]
		case c == 0:
			out, was, news = append(out, l.next(was[0], news[0])), was[1:], news[1:]
		default:
			if len(gone) > 0 && gone[0] == l.name(was[0]) { // by name, too
				gone = gone[1:]
			} else {
				out = append(out, was[0])
			}
			was = was[1:]
		}
	}
	return out
}

// Merge calls f with the items of the same name in two lists by name, and with nil for
// the one that is in only one of them.
func Merge[T any](was, is []*T, name func(*T) string, f func(was, is *T)) {
	for len(was) > 0 || len(is) > 0 {
		c := 0
		switch {
		case len(was) == 0:
			c = 1
		case len(is) == 0:
			c = -1
		case was[0] != is[0]:
			c = model.CompareNames(name(was[0]), name(is[0]))
		}
		switch {
		case c < 0:
			f(was[0], nil)
			was = was[1:]
		case c > 0:
			f(nil, is[0])
			is = is[1:]
		default:
			f(was[0], is[0])
			was, is = was[1:], is[1:]
		}
	}
}

// Pointers returns pointers to the items of a list.
func Pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}
