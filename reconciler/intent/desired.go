package intent

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// Desired is what is wanted of one cell: what the packages of a head declare, with the
// overlays on it.
type Desired struct {
	Jobs   map[schema.JobName]DesiredJob
	Quotas []schema.Quota // of this cell
	Policy schema.Cell    // Quota "on" if the cell is not declared
	// QuotaOrigins says where each quota is declared, by name.
	QuotaOrigins map[string]schema.Position
	Machines     map[string]DesiredMachine // of this cell, by name
	matching     []DesiredMachine          // of this cell, those with Match, sorted by name
	// Waiting are the suspended jobs for which something else is declared than
	// what they run and have in Jobs: that, or nil for those that no package
	// declares.
	Waiting map[schema.JobName]*DesiredJob
	// Services are those of this cell, sorted by user and name.
	Services []*schema.ServiceSpec
	names    []schema.JobName // of Jobs, sorted; nil if that is not known
	base     *base            // nil if that is not known
	owners   Tenants          // those of the packages
}

// DesiredJob is a job as it is declared, with what the names in it stand for.
// So a name that comes to stand for something else changes the job's data, and
// one that is given to the same does not.
//
// An alloc set is a desired job of kind schema.Allocs.
type DesiredJob struct {
	Job    *schema.Job
	Digest schema.Digest
	Origin schema.Position
	// Refused says which names in the job stand for nothing, or for what it may
	// not have: it is rejected.
	Refused []schema.Diagnostic
	// Count is how many tasks the job is to have, where an overlay says so; nil if Job
	// does. It is no part of the data: another count is no other version. Job, with it, is
	// Job.With(Count).
	Count *int
	// By is the overlay that says so; "" if it is what is declared.
	By Overlay
}

// Declared returns what the given packages declare for a cell. Names that
// stand for objects of other packages are resolved here, and so alike for the
// master and for who checks a commit.
func Declared(cell string, packages []*schema.Package) Desired {
	return DeclaredWith(cell, packages, func(_ *schema.Package, _ int, j *schema.Job) schema.Digest { return schema.DigestOf(j) })
}

// DeclaredWith is Declared with another way to get the digest of a package's job
// as it is with its names resolved.
func DeclaredWith(cell string, packages []*schema.Package, digest func(p *schema.Package, i int, j *schema.Job) schema.Digest) Desired {
	d, _, _ := declaredWith(cell, packages, digest)
	return d
}

// declaredWith also returns what the names in the packages stand for, and how many jobs they declare.
func declaredWith(cell string, packages []*schema.Package, digest digester) (d Desired, r resolver, jobs int) {
	d = Desired{
		Jobs: map[schema.JobName]DesiredJob{}, Policy: schema.Cell{Name: cell, Quota: "on"},
		QuotaOrigins: map[string]schema.Position{}, Machines: map[string]DesiredMachine{},
	}
	r = resolverOf(packages)
	d.owners = r.tenants
	for _, p := range packages {
		objects, refused := r.objects(p)
		jobsOf(cell, p, &objects, digest, func(j DesiredJob) {
			j.Refused = refused[KeyOf(j.Job)]
			d.Jobs[j.Job.ID()] = j
			jobs++
		})
		for _, q := range objects.Quotas {
			if q.Cell == cell {
				d.Quotas = append(d.Quotas, q)
				d.QuotaOrigins[q.Name] = p.Origins[schema.ObjectKey{Kind: schema.KindQuota, Name: q.Name}]
			}
		}
		for _, m := range objects.Machines {
			if m.Cell == cell {
				d.addMachine(m, p.Origins[schema.ObjectKey{Kind: schema.KindMachine, Name: cell + "/" + m.Name}])
			}
		}
		d.addServices(cell, objects.Services)
		for _, c := range objects.Cells {
			if c.Name == cell {
				d.Policy = c
			}
		}
	}
	slices.SortFunc(d.Quotas, func(a, b schema.Quota) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(d.Services, (*schema.ServiceSpec).Compare)
	slices.SortFunc(d.matching, func(a, b DesiredMachine) int { return strings.Compare(a.Name, b.Name) })
	return d, r, jobs
}

// jobsOf calls add with the jobs and alloc sets that a package declares for a cell, as they are in
// objects, with their names resolved.
func jobsOf(cell string, p *schema.Package, objects *schema.Objects, digest digester, add func(DesiredJob)) {
	for i := range objects.Jobs {
		if j := &objects.Jobs[i]; j.Cell == cell {
			add(DesiredJob{Job: j, Digest: digest(p, i, j), Origin: p.Origins[KeyOf(j)]})
		}
	}
	for i := range objects.AllocSets {
		if j := objects.AllocSets[i].Job(); j.Cell == cell {
			add(DesiredJob{Job: j, Digest: schema.DigestOf(j), Origin: p.Origins[KeyOf(j)]})
		}
	}
}

func (d *Desired) addServices(cell string, services []schema.ServiceSpec) {
	for i := range services {
		if s := &services[i]; s.Cell == cell {
			d.Services = append(d.Services, s)
		}
	}
}

// Owner returns the tenant that a job of user belongs to that is declared in dir, and where the
// tenant is declared; nil if none. A job may be declared by rows that lie in a directory of
// another one, which does not have the user.
func (d *Desired) Owner(dir, user string) (*schema.Tenant, schema.Position) {
	t, _ := d.owners.owner(dir)
	if t == nil || !slices.Contains(t.Users, user) {
		i := slices.IndexFunc(d.owners, func(t tenant) bool { return slices.Contains(t.Users, user) })
		if i < 0 {
			return nil, schema.Position{}
		}
		t = &d.owners[i]
	}
	return t.Tenant, t.origin
}

// Undigested is for who does not look at digests.
func Undigested(*schema.Package, int, *schema.Job) schema.Digest { return "" }

// resolver knows what the names in the packages of a commit, or of a head, stand
// for.
type resolver struct {
	names   valid.Names
	tenants Tenants
}

func resolverOf(packages []*schema.Package) resolver {
	return resolver{valid.NamesOf(packages), TenantsOf(model.ByDir(packages))}
}

// objects returns the objects of a package with what their names stand for, and
// what is wrong with those that name nothing, or what they may not have.
func (r resolver) objects(p *schema.Package) (schema.Objects, map[schema.ObjectKey][]schema.Diagnostic) {
	objects, wrong := r.names.Resolve(p)
	r.tenants.refuse(p, objects, wrong)
	return objects, wrong
}

// Names returns the names of the desired jobs, sorted. The slice is not to be written to.
func (d *Desired) Names() []schema.JobName {
	if d.names != nil {
		return d.names
	}
	return slices.SortedFunc(maps.Keys(d.Jobs), schema.JobName.Compare)
}

// KeyOf returns the key of the object that a desired job is.
func KeyOf(j *schema.Job) schema.ObjectKey {
	kind := schema.KindJob
	if j.Kind == schema.Allocs {
		kind = schema.KindAllocSet
	}
	return schema.ObjectKey{Kind: kind, Name: j.ID().String()}
}
