package reconciler

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Take returns the objects of a compiled commit that a cell that holds nothing
// yet would take into its desired data, with what their names stand for, and
// everything that keeps it from taking others, sorted by position. It is a
// function of the commit.
func Take(c schema.Compiled) (schema.Objects, []schema.Diagnostic) {
	t := take(c)
	return t.objects, fold(t.diagnostics)
}

// Check returns everything that is wrong with a compiled commit by itself, as
// a cell that holds nothing yet, and knows no machine, would see it at a time:
// what Take finds, and what is not admitted. Where a package is not taken that
// may grant quota, nothing is said of what is admitted: that would follow.
func Check(c schema.Compiled, now time.Time) (schema.Objects, []schema.Diagnostic) {
	t := take(c)
	ds := slices.Concat(t.diagnostics, leaveSticky(t.packages, &t.objects))
	for _, cell := range cellsOf(t.objects) {
		if t.headless {
			break
		}
		d := desiredOf(cell, t.packages, undigested)
		adm := Admit(admitInput(model.NewState(cell), d, now))
		var found findings
		for _, name := range d.names() {
			if r := adm.Rejected[name]; r != nil && len(d.Jobs[name].Refused) == 0 { // or take has told it
				found.add(r.Message, keyOf(d.Jobs[name].Job), *r)
			}
		}
		ds = append(ds, found.fold()...)
		for _, w := range adm.Warnings {
			ds = append(ds, w.Diagnostic)
		}
	}
	return t.objects, fold(ds)
}

// taken is what a cell that holds nothing takes of a commit.
type taken struct {
	objects     schema.Objects
	packages    []*schema.Package
	diagnostics []schema.Diagnostic
	headless    bool // a package is not taken that may declare every kind
}

func take(c schema.Compiled) taken {
	a := newAdoption(nil)
	ds := slices.Clone(c.Diagnostics)
	if !hasError(ds) {
		a.take(c.Packages)
	}
	awaits := map[string]bool{}
	for i := range c.Packages {
		awaits[c.Packages[i].Dir] = c.Packages[i].Awaits != ""
	}
	for _, dir := range slices.Sorted(maps.Keys(a.stale)) {
		if !awaits[dir] { // else it is said of the directory that it waits for
			ds = append(ds, a.stale[dir]...)
		}
	}
	ds = a.duplicatesOnce(ds)
	for i := range c.Packages {
		if c.Packages[i].Package != nil {
			ds = append(ds, c.Packages[i].Diagnostics...) // warnings
		}
	}
	t := taken{packages: model.InOrder(a.packages)}
	admin := tenantsOf(a.packages).admin
	for dir := range a.stale {
		t.headless = t.headless || admin(dir)
	}
	all, wrong := resolved(t.packages)
	if !t.headless {
		ds = append(ds, wrong...)
	}
	if len(all.Tenants) == 0 && len(t.packages) > 0 && !t.headless {
		ds = append(ds, noTenants)
	}
	t.objects, t.diagnostics = all, ds
	return t
}

// resolved returns the objects of all packages, with what their names stand for,
// and what is wrong with that, in no order.
func resolved(packages []*schema.Package) (all schema.Objects, ds []schema.Diagnostic) {
	r := resolverOf(packages)
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

// fold sorts diagnostics, and says once what is the same mistake of the same
// place: a definition that many jobs share is in each of them.
func fold(ds []schema.Diagnostic) []schema.Diagnostic {
	slices.SortStableFunc(ds, schema.Diagnostic.Compare)
	return slices.CompactFunc(ds, func(a, b schema.Diagnostic) bool {
		return a.Line > 0 && a.Position == b.Position && a.Message == b.Message
	})
}

// noTenants is what a repository is told that lets everybody do everything.
var noTenants = schema.Diagnostic{
	Severity: schema.Warning, Rule: schema.RuleOwnership,
	Message: "no tenant is declared, so every directory may declare everything",
	Hint:    "declare tenants, with their paths and users, in the root package",
}

func cellsOf(o schema.Objects) []string {
	names := map[string]bool{}
	for i := range o.Jobs {
		names[o.Jobs[i].Cell] = true
	}
	for i := range o.AllocSets {
		names[o.AllocSets[i].Cell] = true
	}
	return slices.Sorted(maps.Keys(names))
}
