package terms

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// Check is a check of data that a library makes.
type Check struct {
	At token.Pos // of the condition, or of the call of error
	// Message is the library's own, "" if it has none.
	Message string
	// Holds is the condition that does not hold, as it is written; "" if the check is a call
	// of error.
	Holds string
	// Looks are the names that the check, and the conditions that it stands under, refer to:
	// the data paths from where they can be seen. What is compared by order comes first: what is
	// too much or too little is more often wrong than what it is of.
	Looks [][]string
	// Field is the name of the hidden field that the check is in, "" if it is in none.
	Field string
	// Call is set of a call of error, IsTrue of a field that has to be true.
	Call, IsTrue bool

	clauses []ast.Clause // of the comprehensions that it stands in, from the outside
}

// CheckAt returns the check of a file that a position lies in, false if there is none: a
// call of error, or a hidden field that must be true.
func CheckAt(f *ast.File, at token.Pos) (c Check, ok bool) {
	w := &walk{at: at}
	w.decls(f.Decls, 0)
	if w.call == nil && w.hidden == nil {
		return Check{}, false
	}
	if w.hidden != nil {
		c.Field, _, _ = ast.LabelName(w.hidden.Label)
	}
	var of []ast.Node
	if w.call != nil {
		c.At, c.Message, c.Call = w.call.Pos(), message(w.call), true
	} else {
		c.At, c.Holds, c.IsTrue = w.hidden.Value.Pos(), Clip(condition(w.hidden.Value)), isTrue(w.hidden.Value)
		of = append(of, w.hidden.Value)
	}
	for i := len(w.guards) - 1; i >= 0; i-- {
		of = append(of, w.guards[i])
	}
	found := &paths{left: mostFollowed}
	for _, n := range of {
		compared(n, found)
	}
	for _, n := range of {
		look(n, 0, found)
	}
	c.Looks, c.clauses = once(found.list), w.clauses
	return c, true
}

// ConditionAt returns where the condition of a file begins that a position lies in, NoPos if there is none.
func ConditionAt(f *ast.File, at token.Pos) token.Pos {
	w, found := &walk{at: at}, token.NoPos
	ast.Walk(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.IfClause); ok && w.contains(c.Condition) {
			found = c.Condition.Pos()
		}
		return true
	}, nil)
	return found
}

// RefAt returns the names of the reference that begins at a position of a file: of a.b.c a, b and c.
func RefAt(f *ast.File, at token.Pos) (names []string) {
	ast.Walk(f, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if ok && names == nil && e.Pos() == at {
			names = Chain(e)
		}
		return names == nil
	}, nil)
	return names
}

// UnionAt returns the outermost alternatives, of which one begins at a line and a column of a file, nil if there are none.
func UnionAt(f *ast.File, line, column int) (found ast.Expr) {
	at := func(e ast.Expr) bool { return e.Pos().Line() == line && e.Pos().Column() == column }
	ast.Walk(f, func(n ast.Node) bool {
		x, ok := n.(*ast.BinaryExpr)
		if ok && found == nil && x.Op == token.OR && slices.ContainsFunc(split(x, token.OR, 0), at) {
			found = x
		}
		return found == nil
	}, nil)
	return found
}

// Unions returns the alternatives in a file, the outermost of each, and the lists of them that are given to or.
func Unions(f *ast.File) (out []ast.Expr) {
	ast.Walk(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.OR {
				out = append(out, n)
			}
			return n.Op != token.OR || slices.ContainsFunc(split(n, token.OR, 0), func(e ast.Expr) bool {
				_, list := strip(e).(*ast.ListLit)
				return list
			})
		case *ast.CallExpr:
			if isCall(n, "or", 1) {
				out = append(out, n)
			}
		}
		return true
	}, nil)
	return out
}

// LabelNames returns the last names of the references in the computed label that a position of a file is in.
func LabelNames(f *ast.File, at token.Pos) (names []string) {
	ast.Walk(f, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || at.Filename() != field.Label.Pos().Filename() || at.Offset() < field.Label.Pos().Offset() || at.Offset() > field.Label.End().Offset() {
			return true
		}
		names = append(names, RefNames(field.Label)...)
		return false
	}, nil)
	return names
}

// RefNames returns the last names of the references in a part of a file.
func RefNames(in ast.Node) (names []string) {
	ast.Walk(in, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if ref := Chain(e); ok && ref != nil {
			names = append(names, ref[len(ref)-1])
			return false
		}
		return true
	}, nil)
	return names
}

// Names reports whether an expression refers to what has a name, as it stands.
func Names(e ast.Expr, name string) (found bool) {
	ast.Walk(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			found = found || Names(n.X, name)
			return false
		case *ast.Field:
			return false
		case *ast.Ident:
			found = found || n.Name == name
		}
		return !found
	}, nil)
	return found
}

// Chain returns the names of a chain of selectors, nil of another expression.
func Chain(e ast.Expr) []string {
	switch x := e.(type) {
	case *ast.Ident:
		return []string{x.Name}
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(x.Sel)
		if base := Chain(x.X); base != nil && err == nil {
			return append(base, name)
		}
	}
	return nil
}

// condition returns a check without what only says that it must be true.
func condition(e ast.Expr) string {
	var all []string
	for _, part := range split(e, token.AND, 0) {
		if id, ok := strip(part).(*ast.BasicLit); ok && id.Kind == token.TRUE {
			continue
		}
		if id, ok := strip(part).(*ast.Ident); ok && (id.Name == "true" || names[id.Name] != "") {
			continue
		}
		all = append(all, Text(strip(part)))
	}
	return strings.Join(all, " & ")
}

// once returns data paths, each where it is first.
func once(all [][]string) (out [][]string) {
	for _, names := range all {
		if !slices.ContainsFunc(out, func(o []string) bool { return slices.Equal(o, names) }) {
			out = append(out, names)
		}
	}
	return out
}

// isTrue reports whether an expression says that it must be true.
func isTrue(e ast.Expr) bool {
	for _, part := range split(e, token.AND, 0) {
		if lit, ok := strip(part).(*ast.BasicLit); ok && lit.Kind == token.TRUE {
			return true
		}
	}
	return false
}

// isError reports whether an expression is a call of error.
func isError(e ast.Expr) bool {
	c, ok := strip(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := c.Fun.(*ast.Ident)
	return ok && id.Name == "error"
}

// message returns the text that error is called with, "" if it is computed.
func message(c *ast.CallExpr) string {
	if len(c.Args) != 1 {
		return ""
	}
	lit, ok := c.Args[0].(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}

// walk looks for what encloses a position.
type walk struct {
	at     token.Pos
	hidden *ast.Field    // the innermost hidden field
	call   *ast.CallExpr // of error
	guards []ast.Node    // conditions on the way, from the outside
	// clauses are those of all comprehensions on the way, with these conditions, and the let clauses of the
	// structs on it.
	clauses []ast.Clause
}

func (w *walk) contains(n ast.Node) bool {
	from, to := n.Pos(), n.End()
	return from.IsValid() && to.IsValid() && from.Offset() <= w.at.Offset() && w.at.Offset() <= to.Offset()
}

func (w *walk) decls(decls []ast.Decl, depth int) {
	for _, d := range decls {
		if let, ok := d.(*ast.LetClause); ok {
			w.clauses = append(w.clauses, let)
		}
		if depth > maxDepth || !w.contains(d) {
			continue
		}
		switch d := d.(type) {
		case *ast.Field:
			if name, _, err := ast.LabelName(d.Label); err == nil && strings.HasPrefix(name, "_") && d.Value != nil {
				w.hidden = d
			}
			if d.Value != nil {
				w.expr(d.Value, depth+1)
			}
		case *ast.EmbedDecl:
			w.expr(d.Expr, depth+1)
		case *ast.Comprehension:
			w.comprehension(d, depth)
		}
	}
}

// comprehension notes the clauses of a comprehension, and goes on in its value.
func (w *walk) comprehension(c *ast.Comprehension, depth int) {
	w.clauses = append(w.clauses, c.Clauses...)
	for _, c := range c.Clauses {
		if g, ok := c.(*ast.IfClause); ok {
			w.guards = append(w.guards, g.Condition)
		}
	}
	w.expr(c.Value, depth+1)
}

func (w *walk) expr(e ast.Expr, depth int) {
	if depth > maxDepth || !w.contains(e) {
		return
	}
	switch x := e.(type) {
	case *ast.StructLit:
		w.decls(x.Elts, depth+1)
	case *ast.ParenExpr:
		w.expr(x.X, depth+1)
	case *ast.Alias:
		w.expr(x.Expr, depth+1)
	case *ast.BinaryExpr:
		w.expr(x.X, depth+1)
		w.expr(x.Y, depth+1)
	case *ast.ListLit:
		for _, e := range x.Elts {
			if c, ok := e.(*ast.Comprehension); ok {
				if w.contains(c) {
					w.comprehension(c, depth)
				}
				continue
			}
			w.expr(e, depth+1)
		}
	case *ast.CallExpr:
		if isError(x) {
			w.call = x
		}
	}
}
