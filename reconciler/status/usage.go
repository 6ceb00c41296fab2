package status

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Usage is what `muster top -o json` prints: the newest samples beside the
// limits. Field names are stable.
type Usage struct {
	Cell     string             `json:"cell"`
	At       time.Time          `json:"at"`
	Machines []MachineUsageLine `json:"machines"` // sorted by name
	Tasks    []TaskUsageLine    `json:"tasks"`    // sorted by name
}

// MachineUsageLine is one machine. Used is of everything on it, tasks or not.
type MachineUsageLine struct {
	Name string `json:"name"`
	// HeardAt is when the master got the sample; one without any is left out.
	HeardAt  time.Time        `json:"heardAt"`
	Tasks    int              `json:"tasks"` // that run
	Used     schema.Resources `json:"used"`
	Capacity schema.Resources `json:"capacity"` // for tasks
	// Available is what memory and disk are left, whatever the capacity is.
	RAMAvailable  int64 `json:"ramAvailableBytes"`
	DiskAvailable int64 `json:"diskAvailableBytes"`
}

// TaskUsageLine is one task that runs.
type TaskUsageLine struct {
	Name        string           `json:"name"` // user/job/index
	Machine     string           `json:"machine"`
	Band        schema.Band      `json:"band"`
	Generation  uint64           `json:"generation"`
	Incarnation int              `json:"incarnation"`
	HeardAt     time.Time        `json:"heardAt"`
	Limit       schema.Resources `json:"limit"`
	schema.Usage
}

// DescribeUsage returns what the cell's machines and tasks use, as far as they
// said so recently. Samples of generations that the cell has moved on from are
// left out.
func DescribeUsage(s *model.State, samples map[string]model.Sample, now time.Time) *Usage {
	u := &Usage{Cell: s.Cell, At: now, Machines: []MachineUsageLine{}, Tasks: []TaskUsageLine{}}
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		sample := samples[name]
		m := s.Machines[name]
		if m == nil {
			continue
		}
		usage := sample.Usage
		u.Machines = append(u.Machines, MachineUsageLine{
			Name: name, HeardAt: sample.At, Tasks: len(usage.Tasks), Capacity: m.Capacity,
			Used: schema.Resources{
				CPUMilli: usage.CPUMilli, RAMBytes: usage.RAMTotal - usage.RAMAvailable, DiskBytes: usage.DiskTotal - usage.DiskFree,
			},
			RAMAvailable: usage.RAMAvailable, DiskAvailable: usage.DiskFree,
		})
		for i := range usage.Tasks {
			if line, ok := usageLine(s, name, &usage.Tasks[i]); ok {
				line.HeardAt = sample.At
				u.Tasks = append(u.Tasks, line)
			}
		}
	}
	slices.SortFunc(u.Tasks, func(a, b TaskUsageLine) int { return cmp.Compare(a.Name, b.Name) })
	return u
}

// usageLine puts a sample beside the task's limits; false if the cell has no such
// generation on that machine.
func usageLine(s *model.State, machine string, t *schema.TaskUsage) (TaskUsageLine, bool) {
	data := current(s, machine, t)
	if data == nil {
		return TaskUsageLine{}, false
	}
	return TaskUsageLine{
		Name: t.Task.Short(), Machine: machine, Band: data.Priority.Band(), Generation: t.Generation, Incarnation: t.Incarnation,
		Limit: data.Task.Resources.Resources, Usage: t.Usage,
	}, true
}

// current returns the data that the generation of a sample runs, nil if the cell has no such
// generation on that machine.
func current(s *model.State, machine string, t *schema.TaskUsage) *schema.Job {
	r := s.Record(t.Task)
	if r == nil || r.Machine != machine || r.Generation != t.Generation {
		return nil
	}
	return s.Data[r.Data]
}

// Of returns the part of u that is of the tasks and machines that a group has of a cell.
func (u *Usage) Of(g Group, s *Snapshot) (*Usage, error) {
	part, err := g.Of(s)
	if err != nil || part == s {
		return u, err
	}
	tasks, machines := map[string]bool{}, map[string]bool{}
	for _, p := range part.parts {
		for i := range p.Tasks {
			tasks[p.Tasks[i].Name] = true
		}
	}
	for _, m := range part.machines {
		machines[m.Name] = true
	}
	n := *u
	n.Tasks = keep(u.Tasks, func(t *TaskUsageLine) bool { return tasks[t.Name] })
	n.Machines = keep(u.Machines, func(m *MachineUsageLine) bool { return machines[m.Name] })
	return &n, nil
}

// JobUsage is the sum over a job's tasks, or over those of several jobs.
type JobUsage struct {
	User, Job string // "*": all of them
	schema.Usage
}

// MaxJobUsage is how many sums are reported at most.
const MaxJobUsage = 1000

// SumUsage sums up the usage of tasks by job, sorted by name. With more jobs than
// MaxJobUsage it sums up by user, and with more users than that it is one sum: so nobody's
// jobs take the room of another's, and a series does not come and go with what others use.
func SumUsage(s *model.State, samples map[string]model.Sample) []JobUsage {
	sums := map[schema.JobName]*JobUsage{}
	for name, sample := range samples {
		if s.Machines[name] == nil {
			continue
		}
		for i := range sample.Usage.Tasks {
			t := &sample.Usage.Tasks[i]
			if current(s, name, t) == nil {
				continue
			}
			sum := sums[t.Task.JobName]
			if sum == nil {
				sum = &JobUsage{User: t.Task.User, Job: t.Task.Job}
				sums[t.Task.JobName] = sum
			}
			sum.add(&t.Usage)
		}
	}
	for _, name := range []func(j *JobUsage) schema.JobName{
		func(j *JobUsage) schema.JobName { return schema.JobName{User: j.User, Job: "*"} },
		func(*JobUsage) schema.JobName { return schema.JobName{User: "*", Job: "*"} },
	} {
		if len(sums) > MaxJobUsage {
			sums = merge(sums, name)
		}
	}
	out := make([]JobUsage, 0, len(sums))
	for _, sum := range sums {
		out = append(out, *sum)
	}
	slices.SortFunc(out, func(a, b JobUsage) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Job, b.Job))
	})
	return out
}

// merge adds up the sums that get the same name.
func merge(sums map[schema.JobName]*JobUsage, name func(*JobUsage) schema.JobName) map[schema.JobName]*JobUsage {
	out := map[schema.JobName]*JobUsage{}
	for _, sum := range sums {
		k := name(sum)
		if out[k] == nil {
			out[k] = &JobUsage{User: k.User, Job: k.Job}
		}
		out[k].add(&sum.Usage)
	}
	return out
}

func (s *JobUsage) add(u *schema.Usage) {
	s.CPUMilli += u.CPUMilli
	s.RAMBytes += u.RAMBytes
	s.CacheBytes += u.CacheBytes
	s.DiskBytes += u.DiskBytes
	s.Processes += u.Processes
	s.ThrottledMilli += u.ThrottledMilli
	s.DelayMilli += u.DelayMilli
	s.OOMKills += u.OOMKills
}
