package model

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// AdmittedData returns the data that each job runs.
func (s *State) AdmittedData() map[schema.JobName]*schema.Job {
	out := make(map[schema.JobName]*schema.Job, len(s.Jobs))
	for name, r := range s.Jobs {
		if r.Admitted != "" {
			out[name] = s.Data[r.Admitted].With(r.Count)
		}
	}
	return out
}

// Standing is what the admission of jobs is a function of in the record of one.
type Standing struct {
	there, counted bool
	admitted       schema.Digest
	count          int
	origin         schema.Position
	// returned is the data that has failed, and good what runs in its place.
	returned, good schema.Digest
}

// StandingOf returns that of a record, nil if there is none.
func StandingOf(r *schema.JobRecord) Standing {
	if r == nil {
		return Standing{}
	}
	out := Standing{there: true, admitted: r.Admitted, origin: r.Origin}
	if r.Count != nil {
		out.counted, out.count = true, *r.Count
	}
	if x := r.Rollout; x != nil && x.Returned != "" {
		out.returned, out.good = x.Returned, r.Good
	}
	return out
}

// Runs returns the data that a job runs, with as many tasks as it has, nil if none is
// admitted.
func (s *State) Runs(name schema.JobName) *schema.Job {
	if r := s.Jobs[name]; r != nil && r.Admitted != "" {
		return s.Data[r.Admitted].With(r.Count)
	}
	return nil
}

// PackagesInOrder returns the packages of the head, sorted by directory.
func (s *State) PackagesInOrder() []*schema.Package {
	return InOrder(s.HeadPackages())
}

// ByDir returns packages by their directories.
func ByDir(packages []*schema.Package) map[string]*schema.Package {
	out := make(map[string]*schema.Package, len(packages))
	for _, p := range packages {
		out[p.Dir] = p
	}
	return out
}

// InOrder returns packages sorted by directory.
func InOrder(byDir map[string]*schema.Package) []*schema.Package {
	out := make([]*schema.Package, 0, len(byDir))
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		out = append(out, byDir[dir])
	}
	return out
}

// HeadPackages returns the packages of the head, by directory.
func (s *State) HeadPackages() map[string]*schema.Package {
	out := make(map[string]*schema.Package, len(s.Head.Packages))
	for dir, digest := range s.Head.Packages {
		out[dir] = s.Packages[digest]
	}
	return out
}

// MachineNames returns the names of all machines, sorted.
func (s *State) MachineNames() []string { return slices.Sorted(maps.Keys(s.Machines)) }
