package terms

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// each begins the name that stands, in a data path, for any of the fields of a struct or the elements of a
// list: that of the variable of a comprehension follows.
const each = "*"

// Each returns the variable of a comprehension that a name in a data path is one of, false if it is none.
func Each(name string) (variable string, ok bool) { return strings.CutPrefix(name, each) }

// Reached returns an expression that is a list of what the comprehensions around a check go through where the
// check is reached: of each time the labels or indexes, one for each variable. The expression is seen from where
// the check is, and names are those in it, of what it refers to and others. It is "" if there are no variables.
func (c Check) Reached() (text string, variables, names []string) {
	clauses := used(c.clauses)
	at := &ast.ListLit{}
	for i, of := range clauses {
		f, ok := of.(*ast.ForClause)
		if !ok {
			continue
		}
		key := f.Key
		if key == nil || key.Name == "_" {
			key = ast.NewIdent("at" + strconv.Itoa(i) + "_")
			clauses[i] = &ast.ForClause{Key: key, Value: f.Value, Source: f.Source}
		}
		at.Elts, variables = append(at.Elts, ast.NewIdent(key.Name)), append(variables, f.Value.Name)
	}
	if len(variables) == 0 {
		return "", nil, nil
	}
	if _, first := clauses[0].(*ast.LetClause); first { // with which no comprehension begins
		clauses = append([]ast.Clause{&ast.IfClause{Condition: ast.NewBool(true)}}, clauses...)
	}
	value := &ast.StructLit{Elts: []ast.Decl{&ast.EmbedDecl{Expr: at}}}
	return Text(&ast.ListLit{Elts: []ast.Expr{&ast.Comprehension{Clauses: clauses, Value: value}}}), variables, identifiers(clauses...)
}

// used returns clauses without the let clauses that no later one refers to.
func used(clauses []ast.Clause) (out []ast.Clause) {
	var names []string
	for _, c := range slices.Backward(clauses) {
		if let, ok := c.(*ast.LetClause); ok && !slices.Contains(names, let.Ident.Name) {
			continue
		}
		names, out = append(names, identifiers(c)...), append(out, c)
	}
	slices.Reverse(out)
	return out
}

// identifiers returns the names in clauses, sorted.
func identifiers(clauses ...ast.Clause) (names []string) {
	for _, c := range clauses {
		ast.Walk(c, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names = append(names, id.Name)
			}
			return true
		}, nil)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// mostFollowed bounds how many names are followed from one check: let clauses that each refer to another twice
// would take for ever.
const mostFollowed = 1 << 10

// paths are what was found so far, and how many more names may be followed.
type paths struct {
	list [][]string
	left int
}

// look adds what the names in a node stand for, as data paths: a, a.b.c.
func look(n ast.Node, depth int, found *paths) {
	if depth > maxDepth || found.left < 0 {
		return
	}
	ast.Walk(n, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.SelectorExpr:
			if id, names := head(x, 0); id != nil {
				refer(id, names, depth, found)
				return false
			}
		case *ast.IndexExpr: // what is looked up is more often wrong than where
			look(x.Index, depth+1, found)
			look(x.X, depth+1, found)
			return false
		case *ast.CallExpr:
			if name := Chain(x.Fun); len(x.Args) == 2 && slices.Equal(name, []string{"list", "Contains"}) {
				look(x.Args[1], depth+1, found)
			}
		case *ast.Ident:
			refer(x, nil, depth, found)
		case *ast.Field:
			if x.Value != nil {
				look(x.Value, depth+1, found)
			}
			return false
		}
		return true
	}, nil)
}

// compared adds what is compared by order in a node: of kind == "batch" && cpu > 2000 that is cpu.
func compared(n ast.Node, found *paths) {
	ast.Walk(n, func(n ast.Node) bool {
		b, ok := n.(*ast.BinaryExpr)
		if !ok {
			return true
		}
		switch b.Op {
		case token.LSS, token.LEQ, token.GTR, token.GEQ:
			look(b, 0, found)
			return false
		}
		return true
	}, nil)
}

// head returns the first name of a.b.c, and the others; nil if it begins otherwise.
func head(e ast.Expr, depth int) (id *ast.Ident, names []string) {
	switch x := e.(type) {
	case *ast.Ident:
		return x, nil
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(x.Sel)
		if id, names = head(x.X, depth+1); id != nil && err == nil && depth < maxDepth {
			return id, append(names, name)
		}
	}
	return nil, nil
}

// refer adds what a name stands for, of which names are selected: what an alias or a let clause is of, what
// a comprehension goes through, or what a hidden field, which is seen only here, is computed from.
func refer(id *ast.Ident, names []string, depth int, found *paths) {
	if found.left--; found.left < 0 || id.Name == "_" {
		return
	}
	switch of := id.Node.(type) {
	case *ast.Field: // an alias of it
		if label, ok := of.Label.(*ast.Alias); ok {
			if l, ok := label.Expr.(ast.Label); ok {
				add(l, names, found)
			}
			return
		}
		add(of.Label, names, found)
		return
	case *ast.LetClause:
		through(of.Expr, names, depth, found)
		return
	case *ast.Alias: // of the struct around it
		if len(names) > 0 {
			found.list = append(found.list, names)
		}
		return
	}
	switch in := id.Scope.(type) {
	case *ast.ForClause:
		if in.Value.Name == id.Name {
			names = append([]string{each + id.Name}, names...)
		}
		through(in.Source, names, depth, found)
		return
	case *ast.LetClause:
		through(in.Expr, names, depth, found)
		return
	}
	if of, ok := id.Node.(ast.Expr); ok && strings.HasPrefix(id.Name, "_") && len(names) == 0 {
		look(of, depth+1, found)
	}
	found.list = append(found.list, append([]string{id.Name}, names...))
}

// References returns what the elements of a list refer to, as data paths seen from there; of a comprehension among
// them that is what it goes through. Variables of comprehensions around the list are left out.
func References(list *ast.ListLit) (out [][]string) {
	bound := map[string]bool{}
	ast.Walk(list, func(n ast.Node) bool {
		if f, ok := n.(*ast.ForClause); ok {
			bound[f.Value.Name] = true
		}
		return true
	}, nil)
	found := &paths{left: mostFollowed}
	look(list, 0, found)
	for _, names := range found.list {
		if n := slices.IndexFunc(names, func(s string) bool { return strings.HasPrefix(s, each) }); n >= 0 {
			if !bound[names[n][len(each):]] {
				continue
			}
			names = names[:n]
		}
		if len(names) > 0 {
			out = append(out, names)
		}
	}
	return out
}

// OfVariable reports whether an expression is the variable of a comprehension, or selected from one, and of what the
// comprehension goes through the names, nil if it is computed.
func OfVariable(e ast.Expr) (source []string, ok bool) {
	id, _ := head(e, 0)
	if id == nil {
		return nil, false
	}
	in, ok := id.Scope.(*ast.ForClause)
	if !ok || in.Value.Name != id.Name {
		return nil, ok
	}
	return Chain(in.Source), true
}

// add adds the path of what is selected from the field of a label.
func add(l ast.Label, names []string, found *paths) {
	if name, _, err := ast.LabelName(l); err == nil {
		found.list = append(found.list, append([]string{name}, names...))
	}
}

// through adds what is selected from what an expression stands for.
func through(e ast.Expr, names []string, depth int, found *paths) {
	if id, before := head(strip(e), 0); id != nil && depth < maxDepth {
		refer(id, append(before, names...), depth+1, found)
		return
	}
	look(e, depth+1, found)
}
