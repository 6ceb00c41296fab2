package compile

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// accept makes a package of a child's answer. The data is checked again here,
// in the process that will act on it.
func accept(u *unit, resp response) *entry {
	out := schema.CompiledPackage{Dir: u.dir, Diagnostics: resp.Diagnostics, Policies: resp.Policies}
	spent := measured(resp.Used, resp.Allocs)
	if slices.ContainsFunc(resp.Diagnostics, isError) {
		return &entry{pkg: out, cost: spent}
	}
	p := &schema.Package{Dir: u.dir, Origins: map[schema.ObjectKey]schema.Position{}}
	for _, o := range resp.Objects {
		if err := take(p, o); err != nil {
			out.Diagnostics = append(out.Diagnostics, schema.Diagnostic{
				Severity: schema.Error, Rule: schema.RuleInternal, Position: o.Origin, Field: fieldPath([]string{string(o.Kind), o.Name}), Message: err.Error(),
			})
		}
	}
	if slices.ContainsFunc(out.Diagnostics, isError) {
		return &entry{pkg: out, cost: spent}
	}
	p.Objects.Sort()
	slices.SortFunc(p.References, func(a, b schema.Reference) int {
		return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Field, b.Field))
	})
	data := schema.Canonical(p)
	out.Package, out.Digest = p, schema.DigestBytes(data)
	return &entry{pkg: out, bytes: len(data), cost: spent, policyPaths: resp.PolicyPaths}
}

// take checks an object and adds it to the package.
func take(p *schema.Package, o object) error {
	data, err := valid.Parse(o.Data)
	if err != nil {
		return err
	}
	fields, ok := data.(map[string]any)
	if !ok {
		return fmt.Errorf("the compiler gave %T for an object", data)
	}
	delete(fields, "name") // Object gives the name
	checked, problems := valid.Object(o.Kind, o.Name, fields)
	if checked == nil && len(problems) > 0 {
		return fmt.Errorf("%s (%s)", problems[0].Message, strings.Join(problems[0].Path, "."))
	}
	if !bytes.Equal(schema.Canonical(checked), o.Data) {
		return fmt.Errorf("the compiler gave data that is not in canonical form")
	}
	if err := valid.Append(&p.Objects, o.Kind, o.Data); err != nil {
		return err
	}
	key := valid.Key(o.Kind, o.Name, checked)
	p.Origins[key] = o.Origin
	for _, field := range valid.Placed(o.Kind, checked) {
		if at, ok := o.Places[field]; ok {
			p.SetPlace(key, field, at)
		}
	}
	refs := valid.References(o.Kind, checked)
	if len(refs) != len(o.Names) {
		return fmt.Errorf("the compiler gave %d positions for %d names", len(o.Names), len(refs))
	}
	for i, r := range refs {
		p.References = append(p.References, schema.Reference{From: key, Field: strings.Join(r.Path, "."), To: r.To, At: o.Names[i]})
	}
	return nil
}

// Merge returns the objects of all packages that compiled, each list sorted:
// what the commit says, with nothing of a cell's history. An object that two
// packages declare is in it twice, which reconciler.Adopt reports.
func Merge(c schema.Compiled) schema.Objects {
	var packages []*schema.Package
	for _, p := range c.Packages {
		if p.Package != nil {
			packages = append(packages, p.Package)
		}
	}
	var all schema.Objects
	names := valid.NamesOf(packages)
	for _, p := range packages {
		o, _ := names.Resolve(p)
		all.Add(o)
	}
	all.Sort()
	return *all.Unsealed()
}

// Diagnostics returns all that is wrong with a commit, sorted by position: each mistake
// once.
func Diagnostics(c schema.Compiled) []schema.Diagnostic {
	all := c.Mistakes()
	slices.SortStableFunc(all, func(a, b schema.Diagnostic) int { return cmp.Or(a.Compare(b), strings.Compare(a.Expected, b.Expected)) })
	return all
}
