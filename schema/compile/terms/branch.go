package terms

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// Branch is a field that a struct has only under a condition.
type Branch struct {
	Name string
	// If is the condition as it is written, shortened: kind == "Run".
	If string
}

// Branches returns the fields that a struct, or the value of a field, has by the if clauses that are written in it.
func Branches(n ast.Node) (out []Branch) {
	if f, ok := n.(*ast.Field); ok {
		n = f.Value
	}
	if s, ok := n.(*ast.StructLit); ok {
		branches(s, "", 0, &out)
	}
	return out
}

func branches(s *ast.StructLit, under string, depth int, out *[]Branch) {
	for _, d := range s.Elts {
		switch d := d.(type) {
		case *ast.Field:
			if name, _, err := ast.LabelName(d.Label); err == nil && under != "" {
				*out = append(*out, Branch{name, Clip(under)})
			}
		case *ast.Comprehension:
			body, ok := d.Value.(*ast.StructLit)
			if all, only := conditions(d.Clauses, under); ok && only && depth < maxDepth {
				branches(body, all, depth+1, out)
			}
		}
	}
}

// conditions returns the conditions of clauses joined with one that they stand under, false if there are clauses of
// another form: how often a for clause gives a field is not known.
func conditions(clauses []ast.Clause, under string) (all string, only bool) {
	parts := []string{under}
	for _, c := range clauses {
		g, ok := c.(*ast.IfClause)
		if !ok {
			return "", false
		}
		parts = append(parts, Text(g.Condition))
	}
	return strings.TrimPrefix(strings.Join(parts, " && "), " && "), true
}

// GivenIf returns the labels of all fields that files have under conditions on a field of a name, or on what is
// computed from it by a comparison.
func GivenIf(files []*ast.File, name string) map[string]bool {
	names := []string{name}
	for _, f := range files {
		ast.Walk(f, func(n ast.Node) bool {
			label, e := defined(n)
			if b, ok := strip(e).(*ast.BinaryExpr); ok && label != "" && compares(b.Op) && mentions(b, names[:1]) {
				names = append(names, label)
			}
			return true
		}, nil)
	}
	labels := map[string]bool{}
	for _, f := range files {
		ast.Walk(f, func(n ast.Node) bool {
			c, ok := n.(*ast.Comprehension)
			if ok && slices.ContainsFunc(c.Clauses, func(of ast.Clause) bool {
				g, isIf := of.(*ast.IfClause)
				return isIf && mentions(g.Condition, names)
			}) {
				noteLabels(c.Value, labels)
			}
			return true
		}, nil)
	}
	return labels
}

// defined returns the name that a field or a let clause gives to an expression, "" for other nodes.
func defined(n ast.Node) (string, ast.Expr) {
	switch n := n.(type) {
	case *ast.Field:
		if name, _, err := ast.LabelName(n.Label); err == nil && n.Value != nil {
			return name, n.Value
		}
	case *ast.LetClause:
		return n.Ident.Name, n.Expr
	}
	return "", nil
}

// compares reports whether the result of an operator is true or false.
func compares(op token.Token) bool {
	switch op {
	case token.EQL, token.NEQ, token.LAND, token.LOR, token.MAT, token.NMAT:
		return true
	}
	return false
}

// mentions reports whether an expression refers to one of some names, or to a field of one.
func mentions(e ast.Expr, names []string) (yes bool) {
	ast.Walk(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			yes = yes || slices.Contains(names, n.Name)
		case *ast.SelectorExpr:
			name, _, err := ast.LabelName(n.Sel)
			yes = yes || err == nil && slices.Contains(names, name)
		}
		return !yes
	}, nil)
	return yes
}

// noteLabels notes the labels of all fields in a node.
func noteLabels(n ast.Node, labels map[string]bool) {
	ast.Walk(n, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			if name, _, err := ast.LabelName(f.Label); err == nil {
				labels[name] = true
			}
		}
		return true
	}, nil)
}
