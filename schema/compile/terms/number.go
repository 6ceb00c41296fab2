package terms

import (
	"cmp"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
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

// Exclusive returns the first two bounds of an expression, or of one of its alternatives, that no number is within:
// the lower and the upper one. It reports false if there are none.
func Exclusive(e ast.Expr) (low, high ast.Expr, ok bool) {
	for _, alternative := range split(e, token.OR, 0) {
		if low, high, ok = exclusive(alternative); ok {
			return low, high, true
		}
	}
	return nil, nil, false
}

// exclusive is Exclusive for an expression without alternatives.
func exclusive(e ast.Expr) (low, high ast.Expr, ok bool) {
	all := split(e, token.AND, 0)
	for _, low := range all {
		from, least, isLow := bound(low, token.GEQ, token.GTR)
		for _, high := range all {
			to, most, isHigh := bound(high, token.LEQ, token.LSS)
			if !isLow || !isHigh {
				continue
			}
			if c := from.Cmp(to); c > 0 || c == 0 && !(least && most) {
				return low, high, true
			}
		}
	}
	return nil, nil, false
}

// bound returns the number of a bound with one of two operators, and whether it has the first: the number itself is
// within. It reports false if it is no such bound.
func bound(e ast.Expr, with, without token.Token) (n *big.Rat, within, ok bool) {
	u, ok := strip(e).(*ast.UnaryExpr)
	if !ok || u.Op != with && u.Op != without {
		return nil, false, false
	}
	text := Text(u.X)
	digits := strings.TrimPrefix(text, "-")
	if whole := Number(digits); whole != "" {
		text = strings.TrimSuffix(text, digits) + whole
	}
	n, ok = new(big.Rat).SetString(text)
	return n, u.Op == with, ok
}

// Example returns a value that an expression takes in the place of a text that somebody wrote, and whether it is a
// default beside a type: "" if none is known.
func Example(text, written string) (value string, isDefault bool) {
	e, err := parser.ParseExpr("-", text)
	if text == "" || err != nil {
		return "", false
	}
	all := split(e, token.OR, 0)
	for _, a := range all {
		if a, marked := unmarked(a); marked && !limits(a) {
			return Text(strip(a)), slices.ContainsFunc(all, func(e ast.Expr) bool { e, _ = unmarked(e); return limits(e) })
		}
	}
	for _, a := range all {
		if value = example(a, written); value != "" {
			break
		}
	}
	return value, false
}

// example returns a value that one of several alternatives takes.
func example(e ast.Expr, written string) (value string) {
	for _, part := range split(e, token.AND, 0) {
		switch x := strip(part).(type) {
		case *ast.BasicLit:
			return x.Value
		case *ast.UnaryExpr:
			switch x.Op {
			case token.GEQ, token.LEQ, token.SUB:
				value = strings.TrimLeft(Text(x), "<>= ")
			default:
				return "" // as what a text must match
			}
		case *ast.ListLit:
			return "[]"
		case *ast.Ident:
			value = cmp.Or(value, map[string]string{"int": "1", "number": "1", "bool": "false", "string": strconv.Quote(written)}[x.Name])
		default:
			return ""
		}
	}
	return value
}
