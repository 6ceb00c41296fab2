package terms

import (
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
)

// Number returns a number that is written with a unit, or with _ between its digits, as the digits
// alone: 1024 of 1Ki. It returns "" of what is no number.
func Number(text string) string {
	var n literal.NumInfo
	if err := literal.ParseNum(text, &n); err != nil || !n.IsInt() {
		return ""
	}
	return n.String()
}

// BoundAt returns the bound at a line and a column of a file as it is written there, <=4Gi, if it is
// the one that CUE calls <=4294967296; else "".
func BoundAt(f *ast.File, line, column int, bound string) (text string) {
	ast.Walk(f, func(n ast.Node) bool {
		x, ok := n.(*ast.UnaryExpr)
		if !ok || x.Pos().Line() != line || x.Pos().Column() != column {
			return text == ""
		}
		if lit, ok := x.X.(*ast.BasicLit); ok && lit.Kind == token.INT && x.Op.String()+Number(lit.Value) == bound {
			text = x.Op.String() + lit.Value
		}
		return false
	}, nil)
	return text
}
