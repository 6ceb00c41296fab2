package trace

import (
	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
)

// maxTaken bounds how many structs that objects are taken from are looked at.
const maxTaken = 1000

// TakenBy returns the data paths of the structs in definitions of a package that the objects in some top level fields
// are taken from, as job: #apps.web.job does. What is wrong with such a struct is wrong with the object, but CUE says
// so of the definition.
func TakenBy(pkg cue.Value, kinds []string) [][]string {
	t := &taking{pkg: pkg, left: maxFollowed * maxFollowed, seen: map[cue.Value]bool{}}
	for _, kind := range kinds {
		v := pkg.LookupPath(cue.MakePath(cue.Str(kind)))
		if !v.Exists() {
			continue
		}
		it, err := v.Fields()
		for err == nil && it.Next() {
			t.follow(it.Value(), maxDepth)
		}
		t.follow(v, maxDepth)
	}
	return t.found
}

type taking struct {
	pkg   cue.Value
	left  int
	seen  map[cue.Value]bool
	found [][]string
}

// follow notes what a value is selected from, and what that is selected from.
func (t *taking) follow(v cue.Value, depth int) {
	defer func() { _ = recover() }() // as in elements: what is found so far is better than nothing
	if t.left--; t.left < 0 || depth == 0 || ofOthers(v.Source()) {
		return
	}
	op, args := Expr(v)
	switch op {
	case cue.AndOp:
		for _, a := range args {
			t.follow(a, depth-1)
		}
	case cue.SelectorOp, cue.IndexOp:
		if inner, _ := Expr(args[0]); inner != cue.AndOp { // else it is a call of a template: see Arguments
			t.note(args[0])
			t.follow(args[0], depth-1)
		}
		if to, ok := dereferenced(v); ok && to.Pos() != v.Pos() {
			t.follow(to, depth-1)
		}
	}
}

// ofOthers reports whether what a value is written as refers to nothing but what is imported: there CUE would evaluate
// a whole template to take it apart, and nothing of the package would be found.
func ofOthers(source ast.Node) bool {
	if f, ok := source.(*ast.Field); ok {
		source = f.Value
	}
	if _, ok := source.(ast.Expr); !ok {
		return false
	}
	others := true
	ast.Walk(source, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructLit, *ast.ListLit:
			return false
		case *ast.SelectorExpr:
			id, ok := n.X.(*ast.Ident)
			if !ok {
				return others
			}
			_, imported := id.Node.(*ast.ImportSpec)
			others = others && imported
			return false
		case *ast.Ident:
			others = false
		}
		return others
	}, nil)
	return others
}

// note adds a struct that something is selected from, if it is in a definition.
func (t *taking) note(ref cue.Value) {
	v, ok := dereferenced(ref)
	if !ok || t.seen[v] || len(t.seen) >= maxTaken {
		return
	}
	t.seen[v] = true
	at := v.Path()
	if sels := at.Selectors(); at.Err() == nil && len(sels) > 0 && sels[0].IsDefinition() && t.pkg.LookupPath(at).Pos() == v.Pos() {
		t.found = append(t.found, labelsOf(v))
	}
}
