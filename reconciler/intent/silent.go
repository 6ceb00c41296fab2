package intent

import (
	"fmt"
	"path"
	"slices"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// mostWarnings bounds the warnings of a head, which is stored and loaded whole.
const mostWarnings = 50

// warnings returns the warnings of a commit that a cell shows: of what is not followed, of
// the packages of c that are not stale, and of what is declared to no effect. The packages
// are those taken.
func warnings(packages []*schema.Package, c schema.Compiled, stale map[string][]schema.Diagnostic) (out []schema.Diagnostic) {
	add := func(ds []schema.Diagnostic) {
		for _, d := range ds {
			if d.Severity == schema.Warning {
				out = append(out, d)
			}
		}
	}
	add(c.Diagnostics)
	taken := map[string]*schema.Package{}
	for _, p := range packages {
		taken[p.Dir] = p
	}
	admin := TenantsOf(taken).admin
	judged := true // what says who owns what is taken as it stands in c
	for i := range c.Packages {
		p := &c.Packages[i]
		_, old := stale[p.Dir]
		if !old {
			add(p.Diagnostics)
		}
		judged = judged && !(old && (admin(p.Dir) || p.Package != nil && declaresPolicy(p.Package)))
	}
	asDeclared := slices.DeleteFunc(slices.Clone(packages), func(p *schema.Package) bool { return stale[p.Dir] != nil })
	out = append(out, silent(asDeclared, c, judged)...)
	out = Fold(out)
	if more := len(out) - mostWarnings; more > 0 {
		out = out[:mostWarnings]
		out[mostWarnings-1].Message += fmt.Sprintf(" (and %d more, which muster validate shows)", more)
	}
	return out
}

// packagesOf returns the packages of a commit that compiled, in order.
func packagesOf(c schema.Compiled) []*schema.Package {
	var out []*schema.Package
	for i := range c.Packages {
		if p := c.Packages[i].Package; p != nil {
			out = append(out, p)
		}
	}
	return out
}

// silent warns of what is declared to no effect: paths of tenants that do not exist, quotas
// for users of no tenant; and of jobs while no cell is declared.
// The packages are those of c that are taken. Judged says that all that may declare tenants and cells are
// among them: else only that is said which depends on no other package.
func silent(packages []*schema.Package, c schema.Compiled, judged bool) []schema.Diagnostic {
	var out []schema.Diagnostic
	warn := func(d schema.Diagnostic) {
		d.Severity = schema.Warning
		out = append(out, d)
	}
	dirs := map[string]bool{}
	var users []string
	var cells, jobs bool
	tenants := 0
	for i := range c.Packages { // also those that do not compile
		for dir := c.Packages[i].Dir; !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, p := range packages {
		tenants += len(p.Objects.Tenants)
		for i := range p.Objects.Tenants {
			users = append(users, p.Objects.Tenants[i].Users...)
		}
		cells, jobs = cells || len(p.Objects.Cells) > 0, jobs || len(p.Objects.Jobs) > 0
	}
	slices.Sort(users)
	there := func(dir string) bool { return dirs[dir] || unread(c, dir) }
	for _, p := range packages {
		for _, d := range pathless(p, there) {
			warn(d.Diagnostic)
		}
		for i := range p.Objects.Quotas {
			if d := unusable(p, &p.Objects.Quotas[i], users); judged && d != nil {
				warn(*d)
			}
		}
	}
	// Without tenants every package may declare cells.
	if judged && jobs && !cells && (tenants > 0 || len(packages) == len(c.Packages)) {
		warn(noCell)
	}
	return out
}

// pathless are the paths of a package's tenants that are not there, each with the warning about it.
func pathless(p *schema.Package, there func(dir string) bool) (out []pathlessTenant) {
	for i := range p.Objects.Tenants {
		t := &p.Objects.Tenants[i]
		key := schema.ObjectKey{Kind: schema.KindTenant, Name: t.Name}
		for n, dir := range t.Paths {
			if !there(dir) {
				out = append(out, pathlessTenant{dir: dir, Diagnostic: schema.Diagnostic{
					Rule: schema.RuleNoEffect, Position: p.Place(key, fmt.Sprintf("paths.%d", n)), Field: key.Field() + ".paths",
					Message: fmt.Sprintf("directory %s has no packages", dir), Hint: "correct the path, or remove it",
				}})
			}
		}
	}
	return out
}

type pathlessTenant struct {
	schema.Diagnostic
	dir string
}

// atPaths moves what is wrong with packages since no tenant has them to the path of a tenant that is probably a
// misspelling of their directory, in the place of the warning about it.
func (a *adoption) atPaths(ds []schema.Diagnostic, packages []*schema.Package, c schema.Compiled) []schema.Diagnostic {
	owners := TenantsOf(a.packages)
	var nobodys []string
	for dir := range a.stale {
		if o, _ := owners.owner(dir); o == nil {
			nobodys = append(nobodys, dir)
		}
	}
	slices.Sort(nobodys)
	there := func(dir string) bool {
		return unread(c, dir) || slices.ContainsFunc(c.Packages, func(p schema.CompiledPackage) bool { return covers(dir, p.Dir) })
	}
	for _, p := range packages {
		for _, w := range pathless(p, there) {
			near := valid.Nearest(w.dir, nobodys)
			i := slices.IndexFunc(ds, func(d schema.Diagnostic) bool {
				return near != "" && d.Severity == schema.Error && d.Rule == schema.RuleOwnership && path.Dir(d.Path) == near
			})
			if i < 0 {
				continue
			}
			ds[i].Position, ds[i].Field, ds[i].Hint = w.Position, w.Field, fmt.Sprintf("did you mean %q?", near)
			ds = slices.DeleteFunc(ds, func(d schema.Diagnostic) bool {
				return d.Severity == schema.Warning && d.Position == w.Position && d.Message == w.Message
			})
		}
	}
	return ds
}

// unread reports whether a directory lies below one of a commit of which nothing was read.
func unread(c schema.Compiled, dir string) bool {
	return slices.ContainsFunc(c.Packages, func(p schema.CompiledPackage) bool { return p.Below && covers(p.Dir, dir) })
}

// unusable warns of a quota for a user of no tenant, nil if users, which are sorted, has it
// or there are none.
func unusable(p *schema.Package, q *schema.Quota, users []string) *schema.Diagnostic {
	if _, known := slices.BinarySearch(users, q.User); known || len(users) == 0 {
		return nil
	}
	key := schema.ObjectKey{Kind: schema.KindQuota, Name: q.Name}
	d := &schema.Diagnostic{
		Rule: schema.RuleNoEffect, Position: p.Place(key, "user"), Field: key.Field() + ".user",
		Message: fmt.Sprintf("no tenant has the user %q, so nobody can use this quota", q.User), Hint: "correct the user, or add it to the users of a tenant",
	}
	if near := valid.Nearest(q.User, users); near != "" {
		d.Hint = fmt.Sprintf("did you mean %q?", near)
	}
	return d
}

// noCell is the warning about a repository that declares jobs and no cell.
var noCell = schema.Diagnostic{
	Rule: schema.RuleNoEffect, Message: "no cell is declared, so the names of cells in jobs are not checked, and no cell has a policy of its own",
	Hint: `declare it in cells/: cell: NAME: muster.#Cell & {quota: "on"}`,
}
