package compile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/valid"
)

// answer finds the sources of a package that compiles.
func answer(req request, l *loaded) response {
	q := req.Ask
	x := &exporter{left: req.Limits.OutputBytes}
	top := []string{string(q.Kind), q.Name}
	given := x.plain(l.where.value(top), 0)
	data, _ := valid.Object(q.Kind, q.Name, given)
	var out []FieldSource
	dataPath := func(at []string) string { return fieldPath(slices.Concat(top, at))[len(fieldPath(top))+1:] }
	var walk func(at []string, v any)
	walk = func(at []string, v any) {
		if m, ok := v.(map[string]any); ok && len(m) > 0 {
			for _, name := range sortedKeys(m) {
				walk(append(slices.Clone(at), name), m[name])
			}
			return
		}
		written := valid.Given(q.Kind, given, at)
		field, former := dataPath(at), dataPath(written)
		if q.Field != "" && !within(field, q.Field) && !within(former, q.Field) {
			return
		}
		s := FieldSource{Field: field, Value: terms.Clip(string(schema.Canonical(v))), Places: contributions(l.where, l.dir, append(slices.Clone(top), written...))}
		if f, ok := valid.Formers()[written[len(written)-1]]; ok && former != field {
			s.Deprecated = f.Replaced()
		}
		out = append(out, s)
	}
	delete(data, "name")
	walk(nil, any(data))
	return response{Sources: out, Given: schema.Canonical(given)}
}

func sortedKeys(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// contributions returns the places of the value at a path: those of the package itself, which is
// in dir, first, then those of what it imports, then those of the schema.
func contributions(p *positions, dir string, at []string) []Contribution {
	v := p.value(at)
	if !v.Exists() {
		return []Contribution{{Role: Schema, Text: "the default of the schema"}}
	}
	var out []Contribution
	for _, leaf := range leaves(v, 0) {
		c := contribution(leaf)
		if f, ok := p.index()[c.Position]; ok && c.Role == Limit {
			c.Text = terms.Clip(terms.Text(f.Value)) // all that is written there
		}
		same := func(o Contribution) bool { return o.Path == c.Path && o.Line == c.Line && o.Role == c.Role }
		if c.Path != "" && !slices.ContainsFunc(out, same) {
			out = append(out, c)
		}
	}
	if !slices.ContainsFunc(out, func(c Contribution) bool { return c.Role == Sets || c.Role == Defaults }) && !v.IsConcrete() {
		out = append(out, Contribution{Role: Schema, Text: "the default of the schema"})
	}
	rank := func(c Contribution) int {
		switch in := path.Dir(c.Path); {
		case c.Path == "":
			return 3
		case in == dir || !strings.HasSuffix(c.Path, ".cue"):
			return 0
		case lax.IsDir(in):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Contribution) int { return rank(a) - rank(b) })
	return out
}

// leaves returns what a value is joined of.
func leaves(v cue.Value, depth int) []cue.Value {
	op, all := v.Expr()
	if op != cue.AndOp || depth > maxDepth {
		return []cue.Value{v}
	}
	var out []cue.Value
	for _, leaf := range all {
		out = append(out, leaves(leaf, depth+1)...)
	}
	return out
}

// contribution says what one of the places of a value does.
func contribution(leaf cue.Value) Contribution {
	c := Contribution{Role: Limit, Position: valueAt(leaf)}
	// A name stands for what is elsewhere: that is where somebody would change it.
	if target := cue.Dereference(leaf); target.Exists() {
		if pos := valueAt(target); pos.Path != "" {
			c.Position, leaf = pos, target
		}
	}
	switch src := leaf.Source().(type) {
	case *ast.Field:
		if src.Value != nil {
			c.Text = terms.Clip(terms.Text(src.Value))
		}
	case ast.Expr:
		c.Text = terms.Clip(terms.Text(src))
	}
	if c.Text == "" {
		c.Text = terms.Clip(strings.Join(strings.Fields(fmt.Sprint(leaf)), " "))
	}
	switch d, isDefault := leaf.Default(); {
	case isDefault && d.IsConcrete() && strings.Contains(c.Text, "*"):
		c.Role = Defaults
	case leaf.IsConcrete() && !isDefault:
		c.Role = Sets
	}
	return c
}
