package reconciler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// adminDirs are the directories whose packages may declare every kind.
var adminDirs = []string{".", "cells"}

// tenants are the tenants that count: those that packages declare which may.
type tenants []schema.Tenant

// tenantsOf returns the tenants of a set of packages. A tenant with the
// capability admin may declare further ones in its paths, and so on.
func tenantsOf(packages map[string]*schema.Package) tenants {
	dirs := slices.Sorted(maps.Keys(packages))
	var t tenants
	for {
		next := gather(packages, dirs, t.admin)
		if len(next) == len(t) {
			return next
		}
		t = next
	}
}

func gather(packages map[string]*schema.Package, dirs []string, may func(dir string) bool) tenants {
	var out tenants
	for _, dir := range dirs {
		if may(dir) {
			out = append(out, packages[dir].Objects.Tenants...)
		}
	}
	return out
}

// owner returns the tenant whose path covers dir most closely, nil if none
// does.
func (t tenants) owner(dir string) *schema.Tenant {
	var best *schema.Tenant
	length := -1
	for i := range t {
		for _, p := range t[i].Paths {
			n := len(p)
			if p == "." {
				n = 0 // shorter than any other
			}
			if covers(p, dir) && n > length {
				best, length = &t[i], n
			}
		}
	}
	return best
}

// covers reports whether dir is path or lies below it.
func covers(path, dir string) bool {
	return path == "." || dir == path || strings.HasPrefix(dir, path+"/")
}

// admin reports whether a package in dir may declare every kind.
func (t tenants) admin(dir string) bool {
	for _, a := range adminDirs {
		if dir == a || a != "." && covers(a, dir) {
			return true
		}
	}
	o := t.owner(dir)
	return o != nil && slices.Contains(o.Capabilities, schema.CapabilityAdmin)
}

// violations returns a diagnostic for each object that p may not declare where
// it is. With no tenant at all everything is allowed but to declare the first
// one outside the admin directories: it would count for nobody.
func (t tenants) violations(p *schema.Package) []schema.Diagnostic {
	var ds []schema.Diagnostic
	admin := t.admin(p.Dir)
	for key, pos := range p.Origins {
		if key.Kind.Admin() && !admin && (len(t) > 0 || key.Kind == schema.KindTenant) {
			ds = append(ds, schema.Diagnostic{
				Severity: schema.Error, Position: pos, Field: key.Field(),
				Message:  fmt.Sprintf("directory %s may not declare a %s", p.Dir, key.Kind),
				Expected: "the root package, cells/, or a path of a tenant with the capability admin",
				Hint:     "move it there, where its owners see it",
			})
		}
	}
	owner := t.owner(p.Dir)
	for i := range p.Objects.Jobs {
		if len(t) == 0 {
			break
		}
		j := &p.Objects.Jobs[i]
		if d := t.mayName(owner, p.Dir, j.User); d != nil {
			key := schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()}
			d.Position, d.Field = p.Origins[key], key.Field()+".user"
			ds = append(ds, *d)
		}
	}
	slices.SortFunc(ds, schema.Diagnostic.Compare)
	return ds
}

// mayName returns nil when jobs in dir may name user.
func (t tenants) mayName(owner *schema.Tenant, dir, user string) *schema.Diagnostic {
	if owner == nil {
		return &schema.Diagnostic{
			Severity: schema.Error, Message: fmt.Sprintf("directory %s belongs to no tenant, so no job may be declared in it", dir),
			Expected: "a directory below the paths of a tenant", Hint: fmt.Sprintf("add a path to the tenant that has the user %q, or move the file", user),
		}
	}
	if slices.Contains(owner.Users, user) {
		return nil
	}
	return &schema.Diagnostic{
		Severity: schema.Error, Message: fmt.Sprintf("directory %s belongs to tenant %q, whose jobs may not name the user %q", dir, owner.Name, user),
		Expected: "one of " + strings.Join(owner.Users, ", "), Hint: fmt.Sprintf("correct the user, or add %q to the users of tenant %q", user, owner.Name),
	}
}
