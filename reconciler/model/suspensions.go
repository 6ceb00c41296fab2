package model

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Suspended reports whether the whole cell is.
func (s *State) Suspended() bool { return s.Suspensions[schema.AllJobs] != nil }

// SuspendedJobs are the jobs that are left as they are.
type SuspendedJobs struct {
	All  *schema.Suspension // nil: not all
	Jobs map[schema.JobName]*schema.Suspension
}

// SuspendedJobs returns the jobs that are left as they are. An alloc set is among
// them in which a suspended job runs: the job's tasks would go with their allocs.
func (s *State) SuspendedJobs() SuspendedJobs {
	x := SuspendedJobs{All: s.Suspensions[schema.AllJobs]}
	if len(s.Suspensions) == 0 {
		return x
	}
	x.Jobs = map[schema.JobName]*schema.Suspension{}
	for _, name := range slices.Sorted(maps.Keys(s.Suspensions)) {
		if name != schema.AllJobs {
			x.Jobs[s.JobName(name)] = s.Suspensions[name]
		}
	}
	for _, job := range slices.SortedFunc(maps.Keys(x.Jobs), schema.JobName.Compare) {
		r := s.Jobs[job]
		if r == nil || s.Data[r.Admitted] == nil {
			continue
		}
		if set, inside := s.Data[r.Admitted].HostSet(); inside && x.Jobs[set] == nil {
			x.Jobs[set] = x.Jobs[job]
		}
	}
	return x
}

// Of returns the suspension that a job is under, nil if it is under none.
func (x SuspendedJobs) Of(name schema.JobName) *schema.Suspension {
	if own := x.Jobs[name]; own != nil {
		return own
	}
	return x.All
}

// JobName is the opposite of JobName.Short for jobs of the state's cell.
func (s *State) JobName(short string) schema.JobName {
	user, job, _ := strings.Cut(short, "/")
	return schema.JobName{Cell: s.Cell, User: user, Job: job}
}
