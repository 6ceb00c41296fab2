package trace

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema/compile/terms"
)

// mark is what the labels begin with under which let clauses are evaluated: no name in a file is one of these.
const mark = "let "

// maxLets bounds how deep let clauses are looked for.
const maxLets = 16

// pruning leaves of a file its let clauses, and the structs and comprehensions that they stand in.
type pruning struct {
	file     *ast.File
	untested map[ast.Node]bool // let clauses
	names    []string          // of the let clauses that are evaluated, by their numbers
	kept     map[ast.Node]bool // let clauses, and the clauses of comprehensions
}

// prune reduces the file.
func (p *pruning) prune() {
	var head []ast.Decl
	for _, d := range p.file.Decls {
		switch d.(type) {
		case *ast.Package, *ast.ImportDecl:
			head = append(head, d)
		}
	}
	p.file.Decls = slices.Concat(head, p.decls(p.file.Decls, p.file, 0))
	for p.sweep() {
	}
	p.imports()
	ast.Walk(p.file, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || id.Scope != p.file {
			return true
		}
		if _, let := id.Node.(*ast.LetClause); !let {
			id.Node, id.Scope = nil, nil // a field of the package
		}
		return true
	}, nil)
}

// imports leaves out the imports that nothing uses any more, which CUE takes for mistakes.
func (p *pruning) imports() {
	used := map[ast.Node]bool{}
	ast.Walk(p.file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			used[id.Node] = true
		}
		return true
	}, nil)
	unused := func(spec *ast.ImportSpec) bool { return !used[spec] }
	for _, d := range p.file.Decls {
		if of, ok := d.(*ast.ImportDecl); ok {
			of.Specs = slices.DeleteFunc(of.Specs, unused)
		}
	}
}

// sweep leaves out let clauses that nothing refers to, which CUE takes for mistakes, and reports whether there were some.
func (p *pruning) sweep() (swept bool) {
	used := map[ast.Node]bool{}
	ast.Walk(p.file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			used[id.Node], used[id.Scope] = true, true
		}
		return true
	}, nil)
	unused := func(n ast.Node) bool {
		_, let := n.(*ast.LetClause)
		swept = swept || let && !used[n]
		return let && !used[n]
	}
	ast.Walk(p.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.File:
			n.Decls = slices.DeleteFunc(n.Decls, func(d ast.Decl) bool { return unused(d) })
		case *ast.StructLit:
			n.Elts = slices.DeleteFunc(n.Elts, func(d ast.Decl) bool { return unused(d) })
		case *ast.Comprehension:
			n.Clauses = slices.DeleteFunc(n.Clauses, func(c ast.Clause) bool { return unused(c) })
		}
		return true
	}, nil)
	return swept
}

// decls returns what is left of declarations: let clauses, a field for each that is to be evaluated, and one for
// each struct and comprehension in which there are more.
func (p *pruning) decls(all []ast.Decl, in ast.Node, depth int) (out []ast.Decl) {
	if depth > maxLets {
		return nil
	}
	lets := p.lets(all)
	for _, let := range lets {
		out = append(out, let)
		out = append(out, p.evaluated(let, let, in)...)
	}
	for i, d := range all {
		if e := p.inner(d, depth); e != nil {
			out = append(out, labelled(strconv.Itoa(i), e))
		}
	}
	return out
}

// lets returns the let clauses of which all is known that they refer to.
func (p *pruning) lets(all []ast.Decl) (out []*ast.LetClause) {
	for _, d := range all {
		if let, ok := d.(*ast.LetClause); ok {
			p.kept[let] = true
			out = append(out, let)
		}
	}
	for before := -1; before != len(out); {
		before = len(out)
		out = slices.DeleteFunc(out, func(let *ast.LetClause) bool {
			if !p.known(let.Expr) {
				delete(p.kept, let)
			}
			return !p.kept[let]
		})
	}
	return out
}

// inner returns what is left of a declaration in which there are let clauses to be evaluated, nil if there are none.
func (p *pruning) inner(d ast.Decl, depth int) ast.Expr {
	switch d := d.(type) {
	case *ast.Field:
		if isData(d) {
			return p.expr(d.Value, depth+1)
		}
	case *ast.EmbedDecl:
		return p.expr(d.Expr, depth+1)
	case *ast.Comprehension:
		for _, c := range d.Clauses {
			if !p.clause(c) {
				return nil
			}
		}
		body, ok := d.Value.(*ast.StructLit)
		before := len(p.names)
		if !ok || d.Fallback != nil {
			return nil
		}
		body.Elts = p.decls(body.Elts, body, depth+1)
		for _, c := range d.Clauses {
			if let, ok := c.(*ast.LetClause); ok {
				body.Elts = append(body.Elts, p.evaluated(let, let.Ident, let)...)
			}
		}
		if len(p.names) > before {
			return &ast.ListLit{Elts: []ast.Expr{d}}
		}
	}
	return nil
}

// evaluated returns a field for a let clause that is to be evaluated: node and scope are what a name that stands for it has.
func (p *pruning) evaluated(let *ast.LetClause, node, scope ast.Node) []ast.Decl {
	if !p.untested[let] || !joins(let.Expr) {
		return nil
	}
	name := &ast.Ident{Name: let.Ident.Name, NamePos: let.Ident.NamePos, Node: node, Scope: scope}
	p.names = append(p.names, let.Ident.Name)
	return []ast.Decl{labelled(mark+strconv.Itoa(len(p.names)-1), name)}
}

// expr reduces the structs of an expression, and returns those in which there are let clauses to be evaluated: nil if
// there are none.
func (p *pruning) expr(e ast.Expr, depth int) ast.Expr {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return p.expr(e.X, depth)
	case *ast.BinaryExpr:
		if e.Op != token.AND {
			return nil
		}
		x, y := p.expr(e.X, depth), p.expr(e.Y, depth)
		if x == nil || y == nil {
			if x == nil {
				x = y
			}
			return x
		}
		return &ast.ListLit{Elts: []ast.Expr{x, y}}
	case *ast.StructLit:
		before := len(p.names)
		e.Elts = p.decls(e.Elts, e, depth)
		if len(p.names) > before {
			return e
		}
	}
	return nil
}

// isData reports whether a field is there whatever else is: it is no definition, pattern or optional field.
func isData(f *ast.Field) bool {
	switch label := f.Label.(type) {
	case *ast.Ident:
		return f.Constraint == token.ILLEGAL && !strings.HasPrefix(label.Name, "#") && !strings.HasPrefix(label.Name, "_#")
	case *ast.BasicLit, *ast.Interpolation, *ast.ParenExpr:
		return f.Constraint == token.ILLEGAL
	}
	return false
}

// clause keeps a clause of a comprehension, and reports whether all is known that it refers to.
func (p *pruning) clause(c ast.Clause) bool {
	ok := false
	switch c := c.(type) {
	case *ast.ForClause:
		ok = p.known(c.Source)
	case *ast.IfClause:
		ok = p.known(c.Condition)
	case *ast.LetClause:
		ok = p.known(c.Expr)
	}
	p.kept[c] = ok
	return ok
}

// known reports whether an expression refers only to what is in it, to what is left of the file, to fields at the
// top of the package, and to packages.
func (p *pruning) known(e ast.Expr) bool {
	known := true
	ast.Walk(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || id.Node == nil || id.Scope == nil {
			return known
		}
		from, to := e.Pos().Offset(), e.End().Offset()
		if at := id.Scope.Pos(); id.Scope != p.file && at.IsValid() && at.Offset() >= from && at.Offset() < to {
			return known
		}
		switch id.Node.(type) {
		case *ast.LetClause:
			known = known && (p.kept[id.Node] || p.kept[id.Scope])
		case *ast.Field, *ast.Alias:
			known = false
		default:
			known = known && (id.Scope == p.file || p.kept[id.Scope])
		}
		return known
	}, nil)
	return known
}

// joins reports whether an expression may join a definition with something else.
func joins(e ast.Expr) (yes bool) {
	definition, joined := false, false
	ast.Walk(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			definition = definition || strings.HasPrefix(n.Name, "#")
		case *ast.BinaryExpr:
			joined = joined || n.Op == token.AND
		case *ast.EmbedDecl:
			joined = true
		}
		return true
	}, nil)
	return definition && joined
}

// untested returns the let clauses of a file of which nothing looks at whether they are valid, or chooses something
// else if they are not.
func untested(f *ast.File) map[ast.Node]bool {
	w := &uses{within: map[ast.Node][]ast.Node{}, tested: map[ast.Node]bool{}, all: map[ast.Node]bool{}}
	ast.Walk(f, w.enter, w.leave)
	for changed := true; changed; {
		changed = false
		for let, users := range w.within {
			if !w.tested[let] && slices.ContainsFunc(users, func(u ast.Node) bool { return w.tested[u] }) {
				w.tested[let], changed = true, true
			}
		}
	}
	for let := range w.tested {
		delete(w.all, let)
	}
	return w.all
}

// uses notes where the let clauses of a file are used.
type uses struct {
	on     []ast.Node // what chooses, or is another let clause, around where the walk is
	all    map[ast.Node]bool
	within map[ast.Node][]ast.Node // the let clauses that use one
	tested map[ast.Node]bool
}

// chooses reports whether what an expression is may depend on whether a part of it is valid, or may be without a part:
// what stands under a condition, or in a struct or list from which one is taken, is perhaps not meant to be used.
func chooses(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfClause, *ast.CallExpr, *ast.IndexExpr:
		return true
	case *ast.Comprehension:
		return slices.ContainsFunc(n.Clauses, func(c ast.Clause) bool { _, is := c.(*ast.IfClause); return is })
	case *ast.SelectorExpr:
		return terms.Chain(n) == nil
	case *ast.UnaryExpr:
		return n.Op == token.MUL
	case *ast.BinaryExpr:
		return n.Op != token.AND && n.Op != token.ADD && n.Op != token.SUB && n.Op != token.MUL && n.Op != token.QUO
	}
	return false
}

// enter notes a use, and what is around what comes next.
func (w *uses) enter(n ast.Node) bool {
	let, isLet := n.(*ast.LetClause)
	if isLet {
		w.all[let] = true
	}
	if isLet || chooses(n) {
		w.on = append(w.on, n)
	}
	id, ok := n.(*ast.Ident)
	if !ok {
		return true
	}
	used, ok := id.Node.(*ast.LetClause)
	if !ok {
		used, ok = id.Scope.(*ast.LetClause) // of a comprehension
	}
	for _, around := range w.on {
		switch _, inLet := around.(*ast.LetClause); {
		case !ok || around == used:
		case inLet:
			w.within[used] = append(w.within[used], around)
		default:
			w.tested[used] = true
		}
	}
	return true
}

func (w *uses) leave(n ast.Node) {
	if len(w.on) > 0 && w.on[len(w.on)-1] == n {
		w.on = w.on[:len(w.on)-1]
	}
}

// labelled returns a field with a text as its label.
func labelled(label string, value ast.Expr) *ast.Field {
	return &ast.Field{Label: ast.NewString(label), Value: value}
}
