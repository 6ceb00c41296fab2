package lax

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/ast/astutil"
	"cuelang.org/go/cue/token"
)

// A company's library says of each field what it may be, and closes what it
// defines: both hide a mistake below it from the strict pass, which knows more of
// it. So the lax definitions are lax in libraries too: what only constrains is
// taken out, what is set or defaulted stays, and definitions take any field. That
// a value breaks the library's own constraint is then left to the strict
// evaluation to say.

// types are the predeclared names that stand for more than one value.
var types = map[string]bool{
	"bool": true, "string": true, "bytes": true, "number": true, "int": true, "float": true, "rune": true,
	"uint": true, "uint8": true, "uint16": true, "uint32": true, "uint64": true, "uint128": true,
	"int8": true, "int16": true, "int32": true, "int64": true, "int128": true, "float32": true, "float64": true,
}

// validators are functions of CUE's standard library that check a value and give
// none.
var validators = map[string]bool{
	"list.MinItems": true, "list.MaxItems": true, "list.UniqueItems": true, "list.MatchN": true, "strings.MinRunes": true, "strings.MaxRunes": true,
	"struct.MinFields": true, "struct.MaxFields": true, "time.Time": true, "time.Duration": true, "time.Format": true, "net.IP": true, "net.IPv4": true,
	"net.IPv6": true, "net.IPCIDR": true, "net.FQDN": true, "net.URL": true, "net.AbsURL": true, "regexp.Valid": true, "strings.IsValid": true,
}

// widen takes out of a file what only constrains.
func widen(f *ast.File) {
	widenDecls(f.Decls, 0)
	resolve(f)
}

// resolve resolves the names of a file that was changed.
func resolve(f *ast.File) {
	ast.Walk(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			id.Node, id.Scope = nil, nil // it may stand for what is no longer there
		}
		return true
	}, nil)
	astutil.Resolve(f, func(token.Pos, string, ...any) {}) // CUE says itself what it does not find
}

func widenDecls(decls []ast.Decl, depth int) {
	if depth > maxDepth {
		return
	}
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			d.Value = widened(d.Value, depth+1)
			if strings.HasPrefix(Label(d), "#") || strings.HasPrefix(Label(d), "_#") {
				unclose(d.Value, depth+1)
			}
		case *ast.EmbedDecl:
			d.Expr = widened(d.Expr, depth+1)
		case *ast.Comprehension:
			d.Value = widened(d.Value, depth+1)
		}
	}
}

// widened returns an expression without what only constrains.
func widened(e ast.Expr, depth int) ast.Expr {
	if depth > maxDepth {
		return e
	}
	switch x := e.(type) {
	case *ast.StructLit:
		widenDecls(x.Elts, depth)
	case *ast.ParenExpr:
		x.X = widened(x.X, depth+1)
	case *ast.BinaryExpr:
		switch x.Op {
		case token.OR:
			widenAlternatives(x, depth)
		case token.AND:
			x.X, x.Y = widened(x.X, depth+1), widened(x.Y, depth+1)
		}
	case *ast.ListLit:
		return widenedList(x, depth)
	default:
		if constrains(e) {
			return anything(e)
		}
	}
	return e
}

// widenedList makes of [...string] what may be anything, and is the empty list unless it is something
// else. What is said of elements that are structs stays: it has their defaults. Of [first, ...] it makes what may be
// anything, and is [first] unless it is something else.
func widenedList(x *ast.ListLit, depth int) ast.Expr {
	if !constrains(x) {
		return x
	}
	last := len(x.Elts) - 1
	of, open := x.Elts[last].(*ast.Ellipsis)
	if !open || slices.ContainsFunc(x.Elts[:last], constrains) {
		return anything(x)
	}
	if last == 0 && of.Type != nil && !constrains(of.Type) {
		of.Type = widened(of.Type, depth+1)
		return x
	}
	none := &ast.UnaryExpr{OpPos: x.Pos(), Op: token.MUL, X: &ast.ListLit{Lbrack: x.Lbrack, Elts: x.Elts[:last], Rbrack: x.Rbrack}}
	return &ast.ParenExpr{Lparen: x.Pos(), X: &ast.BinaryExpr{X: none, OpPos: x.Pos(), Op: token.OR, Y: anything(x)}, Rparen: x.Rbrack}
}

// widenAlternatives makes of *2 | int what may be anything, and is 2 unless it is
// something else. Where all alternatives are values, or some are structs, it is
// they that must be reported, and nothing changes.
func widenAlternatives(e *ast.BinaryExpr, depth int) {
	all := alternatives(e, depth)
	if !slices.ContainsFunc(all, constrains) || slices.ContainsFunc(all, func(e ast.Expr) bool { _, ok := unmarked(e).(*ast.StructLit); return ok }) {
		return
	}
	var replace func(ast.Expr) ast.Expr
	replace = func(e ast.Expr) ast.Expr {
		switch x := e.(type) {
		case *ast.BinaryExpr:
			if x.Op == token.OR {
				x.X, x.Y = replace(x.X), replace(x.Y)
				return x
			}
		case *ast.ParenExpr:
			x.X = replace(x.X)
			return x
		}
		if constrains(e) {
			return anything(e)
		}
		return e
	}
	replace(e)
}

// alternatives returns the parts of A | B | C, with their marks.
func alternatives(e ast.Expr, depth int) []ast.Expr {
	switch x := e.(type) {
	case *ast.BinaryExpr:
		if x.Op == token.OR && depth <= maxDepth {
			return append(alternatives(x.X, depth+1), alternatives(x.Y, depth+1)...)
		}
	case *ast.ParenExpr:
		if depth <= maxDepth {
			return alternatives(x.X, depth+1)
		}
	}
	return []ast.Expr{e}
}

// unmarked returns an alternative without the mark of a default.
func unmarked(e ast.Expr) ast.Expr {
	if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.MUL {
		return u.X
	}
	return e
}

// constrains reports whether an expression says what a value may be, and not
// which it is.
func constrains(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.Ident:
		return types[x.Name] && x.Node == nil
	case *ast.UnaryExpr:
		switch x.Op {
		case token.LSS, token.LEQ, token.GTR, token.GEQ, token.NEQ, token.MAT, token.NMAT:
			return true
		}
	case *ast.ListLit:
		return slices.ContainsFunc(x.Elts, func(e ast.Expr) bool {
			_, open := e.(*ast.Ellipsis)
			return open || constrains(e)
		})
	case *ast.BinaryExpr:
		return x.Op == token.AND && constrains(x.X) && constrains(x.Y) || x.Op == token.OR && constrains(x.X) && constrains(x.Y)
	case *ast.ParenExpr:
		return constrains(x.X)
	case *ast.CallExpr:
		if s, ok := x.Fun.(*ast.SelectorExpr); ok {
			return validators[nameOf(s)]
		}
	case *ast.SelectorExpr:
		return validators[nameOf(x)]
	}
	return false
}

// nameOf returns PACKAGE.NAME of a selector, "" of another one.
func nameOf(s *ast.SelectorExpr) string {
	x, ok := s.X.(*ast.Ident)
	name, _, err := ast.LabelName(s.Sel)
	if !ok || err != nil {
		return ""
	}
	return x.Name + "." + name
}

// anything returns what takes any value, in the place of e.
func anything(e ast.Expr) ast.Expr { return &ast.Ident{NamePos: e.Pos(), Name: "_"} }

// unclose lets the structs of a definition have any further field. Those that are
// alternatives stay closed: which is meant is known by their fields.
func unclose(e ast.Expr, depth int) {
	if depth > maxDepth {
		return
	}
	switch x := e.(type) {
	case *ast.StructLit:
		open := false
		for _, d := range x.Elts {
			switch d := d.(type) {
			case *ast.Field:
				unclose(d.Value, depth+1)
			case *ast.EmbedDecl:
				unclose(d.Expr, depth+1)
			case *ast.Comprehension:
				unclose(d.Value, depth+1)
			case *ast.Ellipsis:
				open = true
			}
		}
		if !open {
			x.Elts = append(x.Elts, &ast.Ellipsis{Ellipsis: x.Rbrace})
		}
	case *ast.ParenExpr:
		unclose(x.X, depth+1)
	case *ast.BinaryExpr:
		if x.Op == token.AND {
			unclose(x.X, depth+1)
			unclose(x.Y, depth+1)
		}
	case *ast.CallExpr:
		if id, ok := x.Fun.(*ast.Ident); ok && id.Name == "close" && len(x.Args) == 1 {
			unclose(x.Args[0], depth+1)
			x.Fun = &ast.Ident{NamePos: id.NamePos, Name: "and"}
			x.Args[0] = ast.NewList(x.Args[0])
		}
	}
}
