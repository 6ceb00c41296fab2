package intent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
	"github.com/musterhq/muster/schema/valid"
)

// adminDirs are the directories whose packages may declare every kind.
var adminDirs = []string{".", "cells"}

// tenant is a tenant and where it is declared.
type tenant struct {
	*schema.Tenant
	origin schema.Position
}

// String names t as messages do.
func (t *tenant) String() string { return fmt.Sprintf("tenant %q (%s)", t.Name, t.origin) }

// Tenants are the tenants that count: those that packages declare which may.
type Tenants []tenant

// TenantsOf returns the tenants of a set of packages. A tenant with the
// capability admin may declare further ones in its paths, and so on.
func TenantsOf(packages map[string]*schema.Package) Tenants {
	var dirs []string // of those that declare any
	for dir, p := range packages {
		if len(p.Objects.Tenants) > 0 {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	var t Tenants
	for {
		next := gather(packages, dirs, t.admin)
		if len(next) == len(t) {
			return next
		}
		t = next
	}
}

func gather(packages map[string]*schema.Package, dirs []string, may func(dir string) bool) Tenants {
	var out Tenants
	for _, dir := range dirs {
		if !may(dir) {
			continue
		}
		p := packages[dir]
		for i := range p.Objects.Tenants {
			t := &p.Objects.Tenants[i]
			out = append(out, tenant{t, p.Origins[schema.ObjectKey{Kind: schema.KindTenant, Name: t.Name}]})
		}
	}
	return out
}

// owner returns the tenant whose path covers dir most closely, and that path;
// nil if none does.
func (t Tenants) owner(dir string) (best *tenant, path string) {
	length := -1
	for i := range t {
		for _, p := range t[i].Paths {
			n := len(p)
			if p == "." {
				n = 0 // shorter than any other
			}
			if covers(p, dir) && n > length {
				best, path, length = &t[i], p, n
			}
		}
	}
	return best, path
}

// covers reports whether dir is path or lies below it.
func covers(path, dir string) bool {
	return path == "." || dir == path || strings.HasPrefix(dir, path+"/")
}

// admin reports whether a package in dir may declare every kind.
func (t Tenants) admin(dir string) bool {
	for _, a := range adminDirs {
		if dir == a || a != "." && covers(a, dir) {
			return true
		}
	}
	o, _ := t.owner(dir)
	return o != nil && slices.Contains(o.Capabilities, schema.CapabilityAdmin)
}

// violations returns what p declares that it may not declare where it is: one
// diagnostic for one mistake, however many objects show it. With no tenant at
// all everything is allowed but to declare the first one outside the admin
// directories: it would count for nobody.
func (t Tenants) violations(p *schema.Package, declared volumes) []schema.Diagnostic {
	var found Findings
	admin := t.admin(p.Dir)
	for key, pos := range p.Origins {
		if key.Kind.Admin() && !admin && (len(t) > 0 || key.Kind == schema.KindTenant) {
			found.Add("admin", key, schema.Diagnostic{
				Rule: schema.RuleOwnership, Position: pos, Field: key.Field(),
				Message:  fmt.Sprintf("directory %s may not declare a %s", p.Dir, key.Kind),
				Expected: "the root package, cells/, or a path of a tenant with the capability admin",
				Hint:     "move it there, where its owners see it",
			})
		}
	}
	t.contested(p, &found)
	owner, _ := t.owner(p.Dir) // of all its jobs: there may be many, and many tenants
	for i := range p.Objects.Jobs {
		if len(t) == 0 {
			break
		}
		t.job(p, &p.Objects.Jobs[i], owner, declared, &found)
	}
	for i := range p.Objects.AllocSets {
		if len(t) > 0 {
			t.job(p, p.Objects.AllocSets[i].Job(), owner, declared, &found)
		}
	}
	for i := range p.Objects.Secrets {
		if len(t) > 0 {
			t.secret(p, &p.Objects.Secrets[i], owner, &found)
		}
	}
	for i := range p.Objects.Services {
		if s := &p.Objects.Services[i]; len(t) > 0 {
			t.mayName(claim{p, schema.ObjectKey{Kind: schema.KindService, Name: s.ID()}, s.User}, owner, &found)
		}
	}
	return found.Fold()
}

// contested finds the tenants of p that claim a path which another tenant
// claims, too.
func (t Tenants) contested(p *schema.Package, found *Findings) {
	first := map[string]*tenant{}
	for i := range t {
		for n, path := range t[i].Paths {
			other, taken := first[path]
			if !taken {
				first[path] = &t[i]
				continue
			}
			key := schema.ObjectKey{Kind: schema.KindTenant, Name: t[i].Name}
			if pos, here := p.Origins[key]; here && pos == t[i].origin && other.Name != t[i].Name {
				found.Add("path "+path, key, schema.Diagnostic{
					Rule: schema.RuleOwnership, Position: p.Place(key, fmt.Sprintf("paths.%d", n)), Field: key.Field() + ".paths",
					Message:  fmt.Sprintf("path %s is claimed by %s, too", path, other),
					Expected: "each path at one tenant", Hint: "remove it from one of them; a longer path may be another tenant's",
				})
			}
		}
	}
}

// job finds what a job, or alloc set, of p may not be where it is, below owner's paths.
func (t Tenants) job(p *schema.Package, j *schema.Job, owner *tenant, declared volumes, found *Findings) {
	if owner != nil && slices.Contains(owner.Users, j.User) && j.Priority.Band() != schema.BandMonitoring && !asks(j) {
		return // as nearly all do; of many jobs, their names alone take long to make
	}
	key := KeyOf(j)
	field := key.Field()
	if !t.mayName(claim{p, key, j.User}, owner, found) && owner == nil {
		return
	}
	if d := t.unmonitored(p.Dir, j); d != nil {
		d.Position, d.Field = p.Place(key, "priority"), field+".priority"
		found.Add("monitoring", key, *d)
	}
	if owner != nil {
		owner.allows(p, j, declared, found)
	}
}

// secret finds what a secret of p may not be where it is, below owner's paths.
func (t Tenants) secret(p *schema.Package, s *schema.Secret, owner *tenant, found *Findings) {
	key := secretKey(s)
	if !t.mayName(claim{p, key, s.User}, owner, found) || s.Age == "" {
		return
	}
	if h, err := sealed.Inspect(s.Age); err == nil && h.Owner == "" {
		found.Add("secret", key, schema.Diagnostic{
			Rule: schema.RuleSecret, Position: p.Origins[key], Field: key.Field() + ".age",
			Message:  "the age file does not say whose it is, so it may be a copy of another tenant's",
			Expected: fmt.Sprintf("an age file that is sealed for %s", s.Owner()), Hint: "muster secret rotate writes that into the files that you can open",
		})
	}
}

// claim is an object of a package that names a user.
type claim struct {
	p    *schema.Package
	key  schema.ObjectKey
	user string
}

// mayName reports whether an object may name its user, below owner's paths.
func (t Tenants) mayName(c claim, owner *tenant, found *Findings) bool {
	p, key, user := c.p, c.key, c.user
	pos, field, kind := p.Origins[key], key.Field(), "job"
	if key.Kind == schema.KindSecret || key.Kind == schema.KindService {
		kind = string(key.Kind)
	}
	if owner == nil {
		hint := "declare a tenant with this directory, or move the file"
		if i := slices.IndexFunc(t, func(o tenant) bool { return slices.Contains(o.Users, user) }); i >= 0 {
			hint = fmt.Sprintf("add %q to the paths of %s, which has the user %q, or move the file", p.Dir, &t[i], user)
		}
		found.Add("nobody", key, schema.Diagnostic{
			Rule: schema.RuleOwnership, Position: pos, Field: field,
			Message:  fmt.Sprintf("directory %s belongs to no tenant, so no %s may be declared in it", p.Dir, key.Kind),
			Expected: "a directory below the paths of a tenant", Hint: hint,
		})
		return false
	}
	if !slices.Contains(owner.Users, user) {
		d := schema.Diagnostic{
			Rule: schema.RuleOwnership, Position: p.Place(key, "user"), Field: field + ".user",
			Message:  fmt.Sprintf("directory %s belongs to tenant %q, whose %ss may not name the user %q", p.Dir, owner.Name, kind, user),
			Expected: "one of " + strings.Join(owner.Users, ", "),
			Hint:     fmt.Sprintf("correct the user, or add %q to the users of %s", user, owner),
		}
		if near := valid.Nearest(user, owner.Users); near != "" {
			d.Hint = fmt.Sprintf("did you mean %q? Else add %q to the users of %s", near, user, owner)
		}
		if len(owner.Users) == 0 {
			d.Expected = "a user of the tenant, which has none"
		}
		found.Add("user "+user, key, d)
		return false
	}
	return true
}

// unmonitored says why a job that dir declares may not be at band monitoring,
// nil if it is not or may be. A priority that it has by name must be known: who
// changes what a name stands for does not change the job's package.
func (t Tenants) unmonitored(dir string, j *schema.Job) *schema.Diagnostic {
	if j.Priority.Band() != schema.BandMonitoring {
		return nil
	}
	owner, path := t.owner(dir)
	if owner == nil || slices.Contains(owner.Capabilities, schema.CapabilityMonitoring) {
		return nil
	}
	granted := fmt.Sprintf("%q", append(slices.Clone(owner.Capabilities), schema.CapabilityMonitoring))
	return &schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleOwnership,
		Message:  fmt.Sprintf("directory %s belongs to tenant %q by its path %s, and the tenant may not have jobs at band monitoring", dir, owner.Name, path),
		Expected: "a priority below 300, or a tenant with the capability monitoring",
		Hint:     fmt.Sprintf("take priority: \"production\", or have the platform team grant it: capabilities: %s at %s", strings.ReplaceAll(granted, `" "`, `", "`), owner),
	}
}

// refuse adds to what is wrong with the jobs of p those whose priority has a
// name that stands for one that they may not have. objects are p's, resolved.
// That is not the package's fault, which may be older than the name's meaning.
func (t Tenants) refuse(p *schema.Package, objects schema.Objects, wrong map[schema.ObjectKey][]schema.Diagnostic) {
	if len(p.References) == 0 {
		return
	}
	names := map[schema.ObjectKey]*schema.Reference{}
	for i := range p.References {
		if r := &p.References[i]; r.To.Kind == schema.KindPriority {
			names[r.From] = r
		}
	}
	jobs := make([]*schema.Job, 0, len(objects.Jobs)+len(objects.AllocSets))
	for i := range objects.Jobs {
		jobs = append(jobs, &objects.Jobs[i])
	}
	for i := range objects.AllocSets {
		jobs = append(jobs, objects.AllocSets[i].Job())
	}
	for _, j := range jobs {
		r := names[KeyOf(j)]
		if r == nil {
			continue
		}
		if d := t.unmonitored(p.Dir, j); d != nil {
			d.Position, d.Field = r.At, r.From.Field()+"."+r.Field
			d.Message = fmt.Sprintf("priority %q is %d: %s", r.To.Name, j.Priority, d.Message)
			wrong[r.From] = append(wrong[r.From], *d)
		}
	}
}

// Findings are mistakes that objects of one package show.
type Findings []finding

// finding is a mistake in one object. Those with the same mistake are one.
type finding struct {
	schema.Diagnostic
	mistake string
	key     schema.ObjectKey
}

// Add adds a mistake of an object; mistakes with the same word are folded.
func (f *Findings) Add(mistake string, key schema.ObjectKey, d schema.Diagnostic) {
	d.Severity = schema.Error
	*f = append(*f, finding{d, mistake, key})
}

// shownObjects is how many further objects a diagnostic names.
const shownObjects = 3

// Fold returns one diagnostic for each mistake, at the first object that shows
// it; it names others.
func (f *Findings) Fold() []schema.Diagnostic {
	if len(*f) == 0 {
		return nil
	}
	slices.SortFunc(*f, func(a, b finding) int { return a.Compare(b.Diagnostic) })
	var out []schema.Diagnostic
	at := map[string]int{}
	others := map[string][]string{}
	for _, x := range *f {
		if _, again := at[x.mistake]; again {
			others[x.mistake] = append(others[x.mistake], x.key.Field())
			continue
		}
		at[x.mistake] = len(out)
		out = append(out, x.Diagnostic)
	}
	for mistake, names := range others {
		list := strings.Join(names[:min(len(names), shownObjects)], ", ")
		if more := len(names) - shownObjects; more > 0 {
			list += fmt.Sprintf(" and %d more", more)
		}
		out[at[mistake]].Message += fmt.Sprintf(" (the same goes for %s)", list)
	}
	return out
}
