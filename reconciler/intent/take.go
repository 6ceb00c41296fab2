package intent

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Taken is what a cell that holds nothing takes of a commit.
type Taken struct {
	Objects     schema.Objects // with what their names stand for
	Packages    []*schema.Package
	Diagnostics []schema.Diagnostic // in no order
	Headless    bool                // a package is not taken that may declare every kind
}

// Take returns what a cell that holds nothing yet would take of a compiled commit into
// its desired data, and everything that keeps it from taking others. It is a function of
// the commit.
func Take(c schema.Compiled) Taken {
	a := newAdoption(nil)
	ds := slices.Clone(c.Diagnostics)
	if !hasError(ds) {
		a.take(c.Packages)
	}
	uncompiled := map[string]bool{}
	for i := range c.Packages {
		uncompiled[c.Packages[i].Dir] = c.Packages[i].Package == nil
	}
	for _, dir := range slices.Sorted(maps.Keys(a.stale)) {
		if !uncompiled[dir] { // else it is among the mistakes
			ds = append(ds, a.stale[dir]...)
		}
	}
	ds = a.duplicatesOnce(ds)
	if ms := c.Mistakes(); !hasError(c.Diagnostics) {
		ds = append(ds, ms[len(c.Diagnostics):]...)
	}
	t := Taken{Packages: model.InOrder(a.packages)}
	admin := TenantsOf(a.packages).admin
	for dir := range a.stale {
		t.Headless = t.Headless || admin(dir)
	}
	all, wrong := resolved(t.Packages)
	if !t.Headless {
		ds = append(ds, wrong...)
	}
	if len(all.Tenants) == 0 && len(t.Packages) > 0 && !t.Headless {
		ds = append(ds, NoTenants)
	}
	if !hasError(c.Diagnostics) {
		ds = a.atPaths(append(ds, silent(t.Packages, c, !t.Headless)...), t.Packages, c)
	}
	t.Objects, t.Diagnostics = all, ds
	return t
}

// resolved returns the objects of all packages, with what their names stand for,
// and what is wrong with that, in no order.
func resolved(packages []*schema.Package) (all schema.Objects, ds []schema.Diagnostic) {
	r, jobs := resolverOf(packages), 0
	for _, p := range packages {
		jobs += len(p.Objects.Jobs)
	}
	all.Jobs = slices.Grow(all.Jobs, jobs) // the list is large: some 1 KiB for each
	for _, p := range packages {
		o, wrong := r.objects(p)
		for _, w := range wrong {
			ds = append(ds, w...)
		}
		all.Add(o)
	}
	all.Sort()
	return all, ds
}

// Fold sorts diagnostics, and says once what is the same mistake of the same
// place: a definition that many jobs share is in each of them.
func Fold(ds []schema.Diagnostic) []schema.Diagnostic {
	slices.SortStableFunc(ds, schema.Diagnostic.Compare)
	return slices.CompactFunc(ds, func(a, b schema.Diagnostic) bool {
		return a.Line > 0 && a.Position == b.Position && a.Message == b.Message
	})
}

// NoTenants is the warning about a repository that lets everybody do everything.
var NoTenants = schema.Diagnostic{
	Severity: schema.Warning, Rule: schema.RuleOwnership,
	Message: "no tenant is declared, so every directory may declare everything",
	Hint:    "declare tenants, with their paths and users, in the root package",
}
