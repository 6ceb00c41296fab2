package intent

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// base is what the packages of a head declare, before overlays, and what it was found out of. What
// another head declares is found out of it by the packages that differ, as long as these declare
// jobs only, which nothing else in the cell depends on. Whoever made it may complete the digests of its jobs;
// after that it is not written to.
type base struct {
	packages map[string]*schema.Package // by directory
	resolver resolver
	declared Desired
	// twice says that a name is declared twice: who has it depends on the order of all packages.
	twice bool
}

// digester returns the digest of the i-th job of a package, as it is with its names resolved.
type digester func(p *schema.Package, i int, j *schema.Job) schema.Digest

// newBase finds out what packages declare for a cell.
func newBase(cell string, packages map[string]*schema.Package, digest digester) *base {
	b := &base{packages: packages}
	var jobs int
	b.declared, b.resolver, jobs = declaredWith(cell, model.InOrder(packages), digest)
	b.twice = jobs > len(b.declared.Jobs)
	b.declared.names, b.declared.base = b.declared.Names(), b
	return b
}

// next returns the base of other packages. b may be nil.
func (b *base) next(cell string, packages map[string]*schema.Package, digest digester) *base {
	if b != nil && !b.twice {
		if gone, come := b.differing(packages); !slices.ContainsFunc(slices.Concat(gone, come), b.bears) {
			if out := b.with(packages, gone); out.add(cell, come, digest) {
				return out
			}
		}
	}
	return newBase(cell, packages, digest)
}

// differing returns the packages that others do not have, and those that only they have, in no
// order.
func (b *base) differing(packages map[string]*schema.Package) (gone, come []*schema.Package) {
	for dir, p := range packages {
		if was := b.packages[dir]; was != p {
			come = append(come, p)
			if was != nil {
				gone = append(gone, was)
			}
		}
	}
	if len(b.packages)+len(come)-len(gone) == len(packages) {
		return gone, come
	}
	for dir, was := range b.packages {
		if packages[dir] == nil {
			gone = append(gone, was)
		}
	}
	return gone, come
}

// bears reports whether what others declare may depend on a package.
func (b *base) bears(p *schema.Package) bool {
	return !declaresJobsOnly(p) || !b.resolver.names.Covers(p)
}

// with returns the base of other packages without what only they declare.
func (b *base) with(packages map[string]*schema.Package, gone []*schema.Package) *base {
	out := &base{packages: packages, resolver: b.resolver, declared: b.declared}
	d := &out.declared
	d.base, d.Jobs = out, maps.Clone(d.Jobs)
	for _, p := range gone {
		for i := range p.Objects.Jobs {
			delete(d.Jobs, p.Objects.Jobs[i].ID())
		}
		for i := range p.Objects.AllocSets {
			delete(d.Jobs, p.Objects.AllocSets[i].ID())
		}
	}
	if len(gone) > 0 {
		d.names = slices.DeleteFunc(slices.Clone(d.names), func(name schema.JobName) bool {
			_, stays := d.Jobs[name]
			return !stays
		})
	}
	return out
}

// add adds what packages declare; false if a name is declared twice then.
func (b *base) add(cell string, come []*schema.Package, digest digester) bool {
	d := &b.declared
	var names []schema.JobName
	for _, p := range come {
		objects, refused := b.resolver.objects(p)
		jobsOf(cell, p, &objects, digest, func(j DesiredJob) {
			name := j.Job.ID()
			j.Refused = refused[KeyOf(j.Job)]
			d.Jobs[name] = j
			names = append(names, name)
		})
	}
	slices.SortFunc(names, schema.JobName.Compare)
	d.names = mergedNames(d.names, names)
	return len(d.names) == len(d.Jobs)
}

// mergedNames returns the names of two lists, each sorted, as one.
func mergedNames(a, b []schema.JobName) []schema.JobName {
	if len(b) == 0 {
		return a
	}
	out := make([]schema.JobName, 0, len(a)+len(b))
	for _, name := range b {
		at, _ := slices.BinarySearchFunc(a, name, schema.JobName.Compare)
		out = append(append(out, a[:at]...), name)
		a = a[at:]
	}
	return append(out, a...)
}

// Tenants returns those of the head of a cell of which d is what is desired.
func (d *Desired) Tenants(s *model.State) Tenants {
	if d.base == nil {
		return TenantsOf(s.HeadPackages())
	}
	return d.base.resolver.tenants
}

// packages returns those of the head of a cell of which d is what is desired, by directory. They are
// not to be written to.
func (d *Desired) packages(s *model.State) map[string]*schema.Package {
	if d.base == nil {
		return s.HeadPackages()
	}
	return d.base.packages
}
