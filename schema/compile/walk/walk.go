package walk

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"

	"github.com/musterhq/muster/schema/compile/lax"
)

// maxDepth bounds the walk through nested expressions.
const maxDepth = 100

// Find returns the fields that declarations write at a data path; none at an empty one, as of an error that has none.
func Find(decls []ast.Decl, at []string) (found []*ast.Field) {
	finder{found: &found}.decls(decls, at, 0)
	return found
}

// FindWild is Find where computed labels and patterns match every name.
func FindWild(decls []ast.Decl, at []string) (found []*ast.Field) {
	finder{found: &found, wild: true}.decls(decls, at, 0)
	return found
}

// FindIn returns the fields that an expression writes at a data path below it.
func FindIn(e ast.Expr, at []string) (found []*ast.Field) {
	finder{found: &found}.expr(e, at, 0)
	return found
}

// finder walks syntax along a path.
type finder struct {
	found *[]*ast.Field
	wild  bool // computed labels and patterns match every name
}

func (s finder) decls(decls []ast.Decl, at []string, depth int) {
	if len(at) == 0 || depth > maxDepth {
		return
	}
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			name := lax.Label(d)
			if name != at[0] && !(s.wild && computed(d.Label, at[0])) {
				continue
			}
			if len(at) == 1 {
				*s.found = append(*s.found, d)
			} else {
				s.expr(d.Value, at[1:], depth+1)
			}
		case *ast.EmbedDecl:
			s.expr(d.Expr, at, depth+1)
		case *ast.Comprehension:
			s.expr(d.Value, at, depth+1)
		}
	}
}

func (s finder) expr(e ast.Expr, at []string, depth int) {
	if depth > maxDepth {
		return
	}
	switch e := e.(type) {
	case *ast.StructLit:
		s.decls(e.Elts, at, depth+1)
	case *ast.BinaryExpr:
		s.expr(e.X, at, depth+1)
		s.expr(e.Y, at, depth+1)
	case *ast.ParenExpr:
		s.expr(e.X, at, depth+1)
	case *ast.CallExpr:
		if name, ok := e.Fun.(*ast.Ident); ok && name.Name == "close" && len(e.Args) == 1 {
			s.expr(e.Args[0], at, depth+1)
		}
	case *ast.SelectorExpr: // (#Make & {in: …}).out
		if p, ok := e.X.(*ast.ParenExpr); ok {
			s.expr(p.X, at, depth+1)
		}
	case *ast.ListLit:
		i, err := strconv.Atoi(at[0])
		if err != nil || i < 0 || i >= len(e.Elts) {
			return
		}
		if len(at) > 1 {
			s.expr(e.Elts[i], at[1:], depth+1)
		} else if _, spread := e.Elts[i].(*ast.Ellipsis); !spread {
			*s.found = append(*s.found, &ast.Field{Label: ast.NewIdent(at[0]), Value: e.Elts[i]})
		}
	}
}

// computed reports whether a label is an expression that may yield name.
func computed(l ast.Label, name string) bool {
	switch l := l.(type) {
	case *ast.ParenExpr, *ast.ListLit:
		return true
	case *ast.Interpolation:
		first, ok := l.Elts[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		prefix := strings.TrimSuffix(strings.TrimLeft(first.Value, `#"`), `\(`)
		return strings.HasPrefix(name, prefix)
	}
	return false
}
