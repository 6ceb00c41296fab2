package reconciler

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Suspended reports whether the whole cell is.
func (s *State) Suspended() bool { return s.Suspensions[schema.AllJobs] != nil }

// suspensions are the jobs that are left as they are.
type suspensions struct {
	all  *schema.Suspension // nil: not all
	jobs map[schema.JobName]*schema.Suspension
}

// suspensions returns the jobs that are left as they are. An alloc set is among
// them in which a suspended job runs: the job's tasks would go with their allocs.
func (s *State) suspensions() suspensions {
	x := suspensions{all: s.Suspensions[schema.AllJobs]}
	if len(s.Suspensions) == 0 {
		return x
	}
	x.jobs = map[schema.JobName]*schema.Suspension{}
	for _, name := range slices.Sorted(maps.Keys(s.Suspensions)) {
		if name != schema.AllJobs {
			x.jobs[s.jobName(name)] = s.Suspensions[name]
		}
	}
	for _, job := range slices.SortedFunc(maps.Keys(x.jobs), schema.JobName.Compare) {
		r := s.Jobs[job]
		if r == nil || s.Data[r.Admitted] == nil {
			continue
		}
		if set, inside := s.Data[r.Admitted].HostSet(); inside && x.jobs[set] == nil {
			x.jobs[set] = x.jobs[job]
		}
	}
	return x
}

// of returns the suspension that a job is under, nil if it is under none.
func (x suspensions) of(name schema.JobName) *schema.Suspension {
	if own := x.jobs[name]; own != nil {
		return own
	}
	return x.all
}

// jobName is the opposite of JobName.Short for jobs of the state's cell.
func (s *State) jobName(short string) schema.JobName {
	user, job, _ := strings.Cut(short, "/")
	return schema.JobName{Cell: s.Cell, User: user, Job: job}
}
