package policytext

import (
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/valid"
)

// Maps returns the paths of the maps and lists that a policy names in what must hold of each object of a kind: in v,
// its value, or as it is written. It does not return those that it names as what may be missing too, and those of a
// name that it looks for with _|_.
func (s *Source) Maps(policy string, kind schema.Kind, v cue.Value) [][]string {
	n := &naming{but: map[string]bool{}}
	n.value(v, valid.Of(kind), nil)
	for _, f := range s.fields([]string{policy, string(kind)}) {
		n.expr(f.Value, valid.Of(kind), nil)
	}
	for _, f := range s.fields([]string{policy}) {
		ast.Walk(f, n.lookedFor, nil)
	}
	out := slices.DeleteFunc(n.paths, func(path []string) bool { return n.but[strings.Join(path, ".")] || n.but[path[len(path)-1]] })
	slices.SortFunc(out, slices.Compare)
	return slices.CompactFunc(out, slices.Equal)
}

// naming collects the paths of maps and lists.
type naming struct {
	paths [][]string
	but   map[string]bool // paths, and names, that are not to be there
}

// note adds the path of a field, and returns the rule of what is below it.
func (n *naming) note(rule *valid.Rule, path []string, optional bool) *valid.Rule {
	f := rule.Field(path[len(path)-1])
	if f == nil {
		return nil
	}
	switch {
	case optional:
		n.but[strings.Join(path, ".")] = true
	case f.Rule.Type == valid.Map || f.Rule.Type == valid.List:
		n.paths = append(n.paths, path)
	}
	if f.Rule.Type == valid.Struct {
		return f.Rule
	}
	return nil
}

// value collects those of a value by a rule at a path.
func (n *naming) value(v cue.Value, rule *valid.Rule, path []string) {
	it, err := v.Fields(cue.Optional(true))
	for err == nil && it.Next() && rule != nil && len(path) < maxDepth {
		if it.Selector().LabelType() != cue.StringLabel || it.Selector().ConstraintType() == cue.PatternConstraint {
			continue
		}
		full := append(slices.Clip(path), it.Selector().Unquoted())
		n.value(it.Value(), n.note(rule, full, it.IsOptional()), full)
	}
}

// expr collects those that an expression names.
func (n *naming) expr(e ast.Expr, rule *valid.Rule, path []string) {
	if rule == nil || len(path) > maxDepth {
		return
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		n.expr(e.X, rule, path)
	case *ast.UnaryExpr: // the mark of a default
		n.expr(e.X, rule, path)
	case *ast.BinaryExpr:
		n.expr(e.X, rule, path)
		n.expr(e.Y, rule, path)
	case *ast.StructLit:
		for _, d := range e.Elts {
			switch d := d.(type) {
			case *ast.EmbedDecl:
				n.expr(d.Expr, rule, path)
			case *ast.Comprehension:
				n.expr(d.Value, rule, path)
			case *ast.Field:
				if name := lax.Label(d); name != "" && !IsHidden(d) {
					full := append(slices.Clip(path), name)
					n.expr(d.Value, n.note(rule, full, d.Constraint == token.OPTION), full)
				}
			}
		}
	}
}

// lookedFor notes the names of what is compared with _|_.
func (n *naming) lookedFor(node ast.Node) bool {
	x, ok := node.(*ast.BinaryExpr)
	if !ok || x.Op != token.EQL && x.Op != token.NEQ {
		return true
	}
	for _, side := range [][2]ast.Expr{{x.X, x.Y}, {x.Y, x.X}} {
		if _, bottom := side[1].(*ast.BottomLit); !bottom {
			continue
		}
		switch of := side[0].(type) {
		case *ast.Ident:
			n.but[of.Name] = true
		case *ast.SelectorExpr:
			if name, _, err := ast.LabelName(of.Sel); err == nil {
				n.but[name] = true
			}
		}
	}
	return true
}
