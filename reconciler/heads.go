package reconciler

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// admitted returns the data that each job runs.
func (s *State) admitted() map[schema.JobName]*schema.Job {
	out := make(map[schema.JobName]*schema.Job, len(s.Jobs))
	for name, r := range s.Jobs {
		if r.Admitted != "" {
			out[name] = s.Data[r.Admitted]
		}
	}
	return out
}

// runs returns the data that a job runs, nil if none is admitted.
func (s *State) runs(name schema.JobName) *schema.Job {
	if r := s.Jobs[name]; r != nil && r.Admitted != "" {
		return s.Data[r.Admitted]
	}
	return nil
}

// packages returns the packages of the head, sorted by directory.
func (s *State) packages() []*schema.Package {
	return inOrder(s.head())
}

// byDir returns packages by their directories.
func byDir(packages []*schema.Package) map[string]*schema.Package {
	out := make(map[string]*schema.Package, len(packages))
	for _, p := range packages {
		out[p.Dir] = p
	}
	return out
}

// inOrder returns packages sorted by directory.
func inOrder(byDir map[string]*schema.Package) []*schema.Package {
	out := make([]*schema.Package, 0, len(byDir))
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		out = append(out, byDir[dir])
	}
	return out
}

// head returns the packages of the head, by directory.
func (s *State) head() map[string]*schema.Package {
	out := make(map[string]*schema.Package, len(s.Head.Packages))
	for dir, digest := range s.Head.Packages {
		out[dir] = s.Packages[digest]
	}
	return out
}

// machineNames returns the names of all machines, sorted.
func (s *State) machineNames() []string { return slices.Sorted(maps.Keys(s.Machines)) }
