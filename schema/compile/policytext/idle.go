package policytext

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/valid"
)

// Idle is a field of a policy that looks like a check, and has no effect.
type Idle struct {
	Field *ast.Field
	// Outside is set of one beside the kinds of objects, which is not joined with any.
	Outside bool
}

// Idles returns the fields of a policy that are true or false of an object, and that neither anything refers to nor
// anything demands to be true.
func (s *Source) Idles(policy string) (out []Idle) {
	refs := s.references()
	for _, top := range s.fields([]string{policy}) {
		ast.Walk(top.Value, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok {
				refs.labels[lax.Label(f)]++
			}
			return true
		}, nil)
	}
	for _, top := range s.fields([]string{policy}) {
		in, ok := top.Value.(*ast.StructLit)
		if !ok {
			continue
		}
		for _, d := range in.Elts {
			f, ok := d.(*ast.Field)
			switch {
			case !ok:
			case valid.Of(schema.Kind(lax.Label(f))) != nil:
				out = append(out, s.idleIn(f.Value, refs)...)
			case IsHidden(f) && !refs.to(f) && (isBool(f.Value) || isDemand(f.Value)):
				out = append(out, Idle{Field: f, Outside: true})
			}
		}
	}
	return out
}

// idleIn returns those in what must hold of each object of a kind. There are none if that is joined of parts, or the
// package has patterns: one of these may demand that what is written in another one is true.
func (s *Source) idleIn(e ast.Expr, refs references) (out []Idle) {
	if refs.patterns || isJoined(e) {
		return nil
	}
	ast.Walk(e, func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		if !ok || f.Value == nil || s.rules[f] != nil {
			return true
		}
		if name := lax.Label(f); strings.HasPrefix(name, "_") || IsHidden(f) {
			if refs.labels[name] == 1 && !refs.to(f) && isBool(f.Value) {
				out = append(out, Idle{Field: f})
			}
		}
		return true
	}, nil)
	return out
}

// isJoined reports whether a struct embeds others, or is joined with what a name stands for.
func isJoined(e ast.Expr) (joined bool) {
	ast.Walk(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ListLit, *ast.CallExpr:
			return false
		case *ast.EmbedDecl:
			joined = true
		case *ast.BinaryExpr:
			joined = joined || n.Op == token.AND && (mayBeStruct(n.X) || mayBeStruct(n.Y))
		}
		return !joined
	}, nil)
	return joined
}

func mayBeStruct(e ast.Expr) bool {
	switch e.(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr, *ast.StructLit, *ast.CallExpr:
		return true
	}
	return false
}

// references are what the package refers to.
type references struct {
	nodes map[ast.Node]bool
	names map[string]bool // of hidden fields that something selects
	// labels are how often a field of the policy has a label.
	labels   map[string]int
	patterns bool // a field is for all labels of a form
}

func (s *Source) references() references {
	r := references{map[ast.Node]bool{}, map[string]bool{}, map[string]int{}, false}
	for _, f := range s.files {
		ast.Walk(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				_, pattern := n.Label.(*ast.ListLit)
				r.patterns = r.patterns || pattern
			case *ast.SelectorExpr:
				if name, _, err := ast.LabelName(n.Sel); err == nil {
					r.names[name] = true
				}
			case *ast.Ident:
				if n.Node != nil {
					r.nodes[n.Node] = true
				}
				if f := declaredAs(n); f != nil {
					r.nodes[f] = true
				}
			}
			return true
		}, nil)
	}
	return r
}

// to reports whether anything refers to a field.
func (r references) to(f *ast.Field) bool {
	return r.nodes[f] || r.nodes[f.Value] || r.names[lax.Label(f)]
}

// isBool reports whether an expression is true or false of an object, and an error of none.
func isBool(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return isBool(e.X)
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	case *ast.BinaryExpr:
		return slices.Contains([]token.Token{
			token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ, token.MAT, token.NMAT, token.LAND, token.LOR,
		}, e.Op)
	case *ast.CallExpr:
		name, _, err := ast.LabelName(callee(e))
		_, ofPackage := e.Fun.(*ast.SelectorExpr)
		if err == nil && !ofPackage && name == "or" && len(e.Args) == 1 {
			return booleans(e.Args[0])
		}
		return err == nil && ofPackage && slices.Contains(predicates, name)
	}
	return false
}

// predicates are the functions of CUE's packages that are true or false of all their arguments.
var predicates = []string{"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "Match", "IsSorted", "IsSortedStrings"}

// booleans reports whether an expression is a list that a comprehension fills with what is true or false.
func booleans(e ast.Expr) bool {
	list, ok := e.(*ast.ListLit)
	if !ok || len(list.Elts) == 0 {
		return false
	}
	for _, element := range list.Elts {
		if c, ok := element.(*ast.Comprehension); ok {
			in, ok := c.Value.(*ast.StructLit)
			if !ok || len(in.Elts) != 1 {
				return false
			}
			embedded, ok := in.Elts[0].(*ast.EmbedDecl)
			if !ok {
				return false
			}
			element = embedded.Expr
		}
		if !isBool(element) {
			return false
		}
	}
	return true
}

// isDemand reports whether an expression is one that must be true: true & (…).
func isDemand(e ast.Expr) bool {
	x, ok := e.(*ast.BinaryExpr)
	if !ok || x.Op != token.AND {
		return false
	}
	lit, ok := x.X.(*ast.BasicLit)
	return ok && lit.Kind == token.TRUE && isBool(x.Y)
}
