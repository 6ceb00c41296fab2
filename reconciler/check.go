package reconciler

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
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
	ds := t.diagnostics
	for _, d := range t.desired {
		adm := Admit(AdmitInput{Desired: d, Now: now})
		var found findings
		for _, name := range d.names() {
			if r := adm.Rejected[name]; r != nil && len(d.Jobs[name].Unresolved) == 0 {
				found.add(r.Message, schema.ObjectKey{Kind: schema.KindJob, Name: name.String()}, *r)
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
	diagnostics []schema.Diagnostic
	desired     []Desired // of each cell that has jobs; none where that cannot be known
}

func take(c schema.Compiled) taken {
	a := adoption{packages: map[string]*schema.Package{}, digests: map[string]schema.Digest{}, stale: map[string][]schema.Diagnostic{}}
	ds := slices.Clone(c.Diagnostics)
	if !hasError(ds) {
		a.take(c.Packages)
	}
	for _, dir := range slices.Sorted(maps.Keys(a.stale)) {
		ds = append(ds, a.stale[dir]...)
	}
	for i := range c.Packages {
		if c.Packages[i].Package != nil {
			ds = append(ds, c.Packages[i].Diagnostics...) // warnings
		}
	}
	packages := inOrder(a.packages)
	t := taken{objects: resolved(packages)}
	admin := tenantsOf(a.packages).admin
	headless := false // a package is not taken that may declare every kind
	for dir := range a.stale {
		headless = headless || admin(dir)
	}
	if len(t.objects.Tenants) == 0 && len(packages) > 0 && !headless {
		ds = append(ds, noTenants)
	}
	for _, cell := range cellsOf(t.objects) {
		if headless {
			break
		}
		d := DesiredOf(cell, packages)
		for _, name := range d.names() {
			ds = append(ds, d.Jobs[name].Unresolved...)
		}
		t.desired = append(t.desired, d)
	}
	t.diagnostics = ds
	return t
}

// resolved returns the objects of all packages, with what their names stand for.
func resolved(packages []*schema.Package) schema.Objects {
	var all schema.Objects
	names := valid.NamesOf(packages)
	for _, p := range packages {
		o, _ := names.Resolve(p)
		all.Add(o)
	}
	all.Sort()
	return all
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
	Severity: schema.Warning,
	Message:  "no tenant is declared, so every directory may declare everything",
	Hint:     "declare tenants, with their paths and users, in the root package",
}

func cellsOf(o schema.Objects) []string {
	names := map[string]bool{}
	for i := range o.Jobs {
		names[o.Jobs[i].Cell] = true
	}
	return slices.Sorted(maps.Keys(names))
}
