package reconciler

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// Desired is what the packages of a head declare for one cell.
type Desired struct {
	Jobs   map[schema.JobName]DesiredJob
	Quotas []schema.Quota // of this cell
	Policy schema.Cell    // Quota "on" if the cell is not declared
	// QuotaOrigins says where each quota is declared, by name.
	QuotaOrigins map[string]schema.Position
	Machines     map[string]DesiredMachine // of this cell, by name
}

// DesiredJob is a job as it is declared, with what the names in it stand for.
// So a name that comes to stand for something else changes the job's data, and
// one that is given to the same does not.
type DesiredJob struct {
	Job    *schema.Job
	Digest schema.Digest
	Origin schema.Position
	// Unresolved says which names in the job stand for nothing: it is rejected.
	Unresolved []schema.Diagnostic
}

// DesiredMachine is what is declared of a machine.
type DesiredMachine struct {
	schema.Machine
	Origin schema.Position
}

// attributes returns what is known of a machine by name: what its agent reports,
// and over it the labels.
func (m DesiredMachine) attributes(info *schema.MachineInfo) map[string]string {
	if len(m.Labels) == 0 {
		return info.Attributes
	}
	out := make(map[string]string, len(info.Attributes)+len(m.Labels))
	maps.Copy(out, info.Attributes)
	maps.Copy(out, m.Labels)
	return out
}

// DesiredOf returns what the given packages declare for a cell. Names that
// stand for objects of other packages are resolved here, and so alike for the
// master and for who checks a commit.
func DesiredOf(cell string, packages []*schema.Package) Desired {
	d := Desired{
		Jobs: map[schema.JobName]DesiredJob{}, Policy: schema.Cell{Name: cell, Quota: "on"},
		QuotaOrigins: map[string]schema.Position{}, Machines: map[string]DesiredMachine{},
	}
	names := valid.NamesOf(packages)
	for _, p := range packages {
		objects, unresolved := names.Resolve(p)
		for i := range objects.Jobs {
			j := &objects.Jobs[i]
			if j.Cell != cell {
				continue
			}
			key := schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()}
			d.Jobs[j.ID()] = DesiredJob{j, schema.DigestOf(j), p.Origins[key], unresolved[key]}
		}
		for _, q := range objects.Quotas {
			if q.Cell == cell {
				d.Quotas = append(d.Quotas, q)
				d.QuotaOrigins[q.Name] = p.Origins[schema.ObjectKey{Kind: schema.KindQuota, Name: q.Name}]
			}
		}
		for _, m := range objects.Machines {
			if m.Cell == cell {
				d.Machines[m.Name] = DesiredMachine{m, p.Origins[schema.ObjectKey{Kind: schema.KindMachine, Name: cell + "/" + m.Name}]}
			}
		}
		for _, c := range objects.Cells {
			if c.Name == cell {
				d.Policy = c
			}
		}
	}
	slices.SortFunc(d.Quotas, func(a, b schema.Quota) int { return strings.Compare(a.Name, b.Name) })
	return d
}

// desired returns what the state's head declares for its cell. It is kept
// until Apply brings another head: the digests of many jobs take their time.
func (s *State) desired() *Desired {
	if s.wanted == nil {
		d := DesiredOf(s.Cell, s.packages())
		s.wanted = &d
	}
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
