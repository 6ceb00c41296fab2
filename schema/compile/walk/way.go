package walk

import (
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema/compile/lax"
)

// Step is a node that the data path of a value leads through: a field, or an element of a list.
type Step struct {
	Label string // of a field; "" of an element
	Node  ast.Node
}

// To returns the steps from the top of a file to the value at a position, nil if none begins there. Compare says where
// a node begins, as cmp.Compare does: before the position, at it, or behind it.
func To(f *ast.File, compare func(token.Pos) int) []Step {
	var out []Step
	children := nodes(f.Decls)
	for range maxDepth {
		n := last(children, compare)
		switch n := n.(type) {
		case nil:
			return nil
		case *ast.Field:
			out = append(out, Step{lax.Label(n), n})
			children = []ast.Node{n.Value}
		case *ast.ListLit:
			children = nodes(n.Elts)
			if element := last(children, compare); element != nil {
				out, children = append(out, Step{"", element}), []ast.Node{element}
			}
		default:
			children = inside(n)
			if len(children) == 0 && compare(n.Pos()) != 0 {
				return nil
			}
			if len(children) == 0 {
				return out
			}
		}
	}
	return nil
}

// inside returns the nodes in one that no label leads to.
func inside(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.StructLit:
		return nodes(n.Elts)
	case *ast.EmbedDecl:
		return []ast.Node{n.Expr}
	case *ast.Comprehension:
		var out []ast.Node
		for _, c := range n.Clauses {
			switch c := c.(type) {
			case *ast.ForClause:
				out = append(out, c.Source)
			case *ast.LetClause:
				out = append(out, c.Expr)
			}
		}
		return append(out, n.Value)
	case *ast.LetClause:
		return []ast.Node{n.Expr}
	case *ast.BinaryExpr:
		return []ast.Node{n.X, n.Y}
	case *ast.UnaryExpr:
		return []ast.Node{n.X}
	case *ast.ParenExpr:
		return []ast.Node{n.X}
	case *ast.CallExpr:
		return nodes(n.Args)
	}
	return nil
}

// last returns the last of the nodes that begin at the position or before it, nil if none does.
func last(all []ast.Node, compare func(token.Pos) int) (found ast.Node) {
	for _, n := range all {
		if n.Pos().IsValid() && compare(n.Pos()) <= 0 {
			found = n
		}
	}
	return found
}

func nodes[N ast.Node](all []N) (out []ast.Node) {
	for _, n := range all {
		out = append(out, n)
	}
	return out
}
