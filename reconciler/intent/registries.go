package intent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// logins is what the packages of a commit have as secrets that registries are asked with.
type logins struct {
	declared map[string]bool             // secrets, by cell/user/name
	first    map[string]schema.ObjectKey // of a user's for a registry, by cell/user/registry
	at       map[schema.ObjectKey]schema.Position
}

// loginsOf finds them in packages in an order that is the same for the same packages; what
// held has comes first, so that a new one does not take the place of one that is used.
func loginsOf(packages, held map[string]*schema.Package) logins {
	l := logins{declared: map[string]bool{}, first: map[string]schema.ObjectKey{}, at: map[schema.ObjectKey]schema.Position{}}
	add := func(dir string, s *schema.Secret) {
		key := secretKey(s)
		l.declared[s.ID()], l.at[key] = true, packages[dir].Origins[key]
		if of := loginName(s); s.Registry != "" && l.first[of].Name == "" {
			l.first[of] = key
		}
	}
	var dirs []string // of those that have any
	for dir, p := range packages {
		if len(p.Objects.Secrets) > 0 {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	for _, old := range []bool{true, false} {
		for _, dir := range dirs {
			p := packages[dir]
			for i := range p.Objects.Secrets {
				if s := &p.Objects.Secrets[i]; has(held[dir], s) == old {
					add(dir, s)
				}
			}
		}
	}
	return l
}

// has reports whether p, which may be nil, has a secret that is the login for the same registry.
func has(p *schema.Package, s *schema.Secret) bool {
	return p != nil && slices.ContainsFunc(p.Objects.Secrets, func(o schema.Secret) bool { return o.ID() == s.ID() && o.Registry == s.Registry })
}

func loginName(s *schema.Secret) string { return s.Owner() + "/" + s.Registry }

// violations returns what p says of registries that cannot be: a login that is not declared,
// and a second one of a user for a registry.
func (l logins) violations(p *schema.Package) []schema.Diagnostic {
	var out []schema.Diagnostic
	for i := range p.Objects.Cells {
		c := &p.Objects.Cells[i]
		key := schema.ObjectKey{Kind: schema.KindCell, Name: c.Name}
		for name, r := range c.Registries {
			if r.Login == "" || l.declared[c.Name+"/"+r.Login] {
				continue
			}
			out = append(out, schema.Diagnostic{
				Severity: schema.Error, Rule: schema.RuleUndefined, Position: p.Origins[key], Field: key.Field() + ".registries." + schema.Label(name) + ".login",
				Message: fmt.Sprintf("no secret %q is declared in cell %s", r.Login, c.Name), Expected: "USER/NAME of a declared secret", Hint: l.hint(c.Name, r.Login),
			})
		}
	}
	for i := range p.Objects.Secrets {
		s := &p.Objects.Secrets[i]
		key := secretKey(s)
		if first := l.first[loginName(s)]; s.Registry != "" && first != key {
			out = append(out, schema.Diagnostic{
				Severity: schema.Error, Rule: schema.RuleDuplicate, Position: p.Origins[key], Field: key.Field() + ".registry",
				Message:  fmt.Sprintf("user %s has another login for %s, declared at %s", s.User, s.Registry, l.at[first]),
				Expected: "one login of a user for a registry", Hint: "remove registry from one of them",
			})
		}
	}
	slices.SortFunc(out, schema.Diagnostic.Compare)
	return out
}

// hint says which secret of a cell was meant, or how to have one.
func (l logins) hint(cell, name string) string {
	var names []string
	for id := range l.declared {
		if of, ok := strings.CutPrefix(id, cell+"/"); ok {
			names = append(names, of)
		}
	}
	slices.Sort(names)
	if near := valid.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	user, secret, _ := strings.Cut(name, "/")
	return fmt.Sprintf("correct the name, or declare it as in secret: %q: muster.#Secret & {user: %q, cell: %q, age: …}", secret, user, cell)
}
