package compile

import (
	"cmp"
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/valid"
)

// definitionsOf returns the names of the definitions that a struct has, such as the parameters of a template.
func definitionsOf(v cue.Value) (out []string) {
	it, err := v.Fields(cue.Definitions(true))
	for err == nil && it.Next() {
		if it.Selector().IsDefinition() {
			out = append(out, it.Selector().String())
		}
	}
	return out
}

// isWhole reports whether all of a value has data.
func isWhole(v any) bool {
	switch v := v.(type) {
	case valid.Broken:
		return false
	case map[string]any:
		for _, e := range v {
			if !isWhole(e) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !isWhole(e) })
	}
	return true
}

func sortedKeys(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// computedFrom returns what expressions refer to.
func computedFrom(args []cue.Value) (out []cue.Value) {
	for _, a := range args {
		if o, ok := trace.Referred(a); ok {
			out = append(out, o.Value)
		}
	}
	return out
}

// isOpen reports whether an expression is a list that may have more elements: it says what these may be.
func isOpen(e ast.Expr) bool {
	l, ok := e.(*ast.ListLit)
	if !ok || len(l.Elts) == 0 {
		return false
	}
	_, ok = l.Elts[len(l.Elts)-1].(*ast.Ellipsis)
	return ok
}

// isOpenList reports whether a value is a list that may have more elements. Its default is no more than what it has
// without these: another list may well have some.
func isOpenList(v cue.Value) bool {
	op, _ := v.Eval().Expr()
	return v.IncompleteKind() == cue.ListKind && op != cue.OrOp
}

// valueAtPlace returns what a field or a let clause has its value of, if what is said is at that; nil if it is not.
func valueAtPlace(n ast.Node, isAt func(token.Pos) bool) ast.Expr {
	switch n := n.(type) {
	case *ast.Field:
		if n.Value != nil && isAt(n.Value.Pos()) {
			return declaration(n.Value)
		}
	case *ast.LetClause:
		if isAt(n.Pos()) {
			return n.Expr
		}
	}
	return nil
}

// defaultOf returns the literal that is the default of several values; nil if there is none.
func defaultOf(e ast.Expr) *ast.BasicLit {
	for {
		b, ok := e.(*ast.BinaryExpr)
		if !ok || b.Op != token.OR {
			return marked(e)
		}
		if lit := marked(b.Y); lit != nil {
			return lit
		}
		e = b.X
	}
}

// marked returns a literal with the mark of a default.
func marked(e ast.Expr) *ast.BasicLit {
	u, ok := e.(*ast.UnaryExpr)
	if !ok || u.Op != token.MUL {
		return nil
	}
	lit, _ := u.X.(*ast.BasicLit)
	return lit
}

// declaration returns what a reference stands for, as it is written in the file; nil if that is not known.
func declaration(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.Ident:
		if let, ok := e.Node.(*ast.LetClause); ok {
			return cmp.Or(declaration(let.Expr), let.Expr)
		}
		to, _ := e.Node.(ast.Expr)
		return to
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(e.Sel)
		in, ok := declaration(e.X).(*ast.StructLit)
		if err != nil || !ok {
			return nil
		}
		for _, d := range in.Elts {
			if f, ok := d.(*ast.Field); ok && lax.Label(f) == name {
				return f.Value
			}
		}
	}
	return nil
}
