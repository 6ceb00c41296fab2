package reconciler

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Desired is what the packages of a head declare for one cell.
type Desired struct {
	Jobs   map[schema.JobName]DesiredJob
	Quotas []schema.Quota // of this cell
	Policy schema.Cell    // Quota "on" if the cell is not declared
	// QuotaOrigins says where each quota is declared, by name.
	QuotaOrigins map[string]schema.Position
}

// DesiredJob is a job as it is declared.
type DesiredJob struct {
	Job    *schema.Job
	Digest schema.Digest
	Origin schema.Position
}

// DesiredOf returns what the given packages declare for a cell.
func DesiredOf(cell string, packages []*schema.Package) Desired {
	return desiredOf(cell, packages, func(p *schema.Package, i int) schema.Digest { return schema.DigestOf(&p.Objects.Jobs[i]) })
}

// desiredOf is DesiredOf with another way to get the digest of a package's job.
func desiredOf(cell string, packages []*schema.Package, digest func(p *schema.Package, i int) schema.Digest) Desired {
	d := Desired{Jobs: map[schema.JobName]DesiredJob{}, Policy: schema.Cell{Name: cell, Quota: "on"}, QuotaOrigins: map[string]schema.Position{}}
	for _, p := range packages {
		for i := range p.Objects.Jobs {
			j := &p.Objects.Jobs[i]
			if j.Cell != cell {
				continue
			}
			id := j.ID()
			d.Jobs[id] = DesiredJob{j, digest(p, i), p.Origins[schema.ObjectKey{Kind: schema.KindJob, Name: id.String()}]}
		}
		for _, q := range p.Objects.Quotas {
			if q.Cell == cell {
				d.Quotas = append(d.Quotas, q)
				d.QuotaOrigins[q.Name] = p.Origins[schema.ObjectKey{Kind: schema.KindQuota, Name: q.Name}]
			}
		}
		for _, c := range p.Objects.Cells {
			if c.Name == cell {
				d.Policy = c
			}
		}
	}
	slices.SortFunc(d.Quotas, func(a, b schema.Quota) int { return strings.Compare(a.Name, b.Name) })
	return d
}

// undigested is for who does not look at digests.
func undigested(*schema.Package, int) schema.Digest { return "" }

// desired returns what the state's head declares for its cell. It is kept
// until Apply brings other packages, and the digests of a package's jobs as long
// as the head has the package: those of many jobs take their time.
func (s *State) desired() *Desired {
	if s.wanted != nil {
		return s.wanted
	}
	known := s.digests
	s.digests = make(map[*schema.Package][]schema.Digest, len(s.Head.Packages))
	d := desiredOf(s.Cell, s.packages(), func(p *schema.Package, i int) schema.Digest {
		ds, ok := s.digests[p]
		if !ok {
			if ds, ok = known[p]; !ok {
				ds = make([]schema.Digest, len(p.Objects.Jobs))
			}
			s.digests[p] = ds
		}
		if ds[i] == "" {
			ds[i] = schema.DigestOf(&p.Objects.Jobs[i])
		}
		return ds[i]
	})
	s.wanted = &d
	return s.wanted
}

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

// packages returns the packages of the head, sorted by directory.
func (s *State) packages() []*schema.Package {
	return inOrder(s.head())
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

// names returns the names of the desired jobs, sorted.
func (d *Desired) names() []schema.JobName {
	return slices.SortedFunc(maps.Keys(d.Jobs), schema.JobName.Compare)
}
