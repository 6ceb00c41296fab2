package edit

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// Value is what a field is set to: a text, a number, true, false, or a list of these.
type Value struct {
	Data any    // decoded JSON, with json.Number
	CUE  string // as it is written in CUE
}

// Text returns the value that is a text.
func Text(s string) Value { return Value{Data: s, CUE: literal.String.Quote(s)} }

// ErrNoLiteral says that a text is no literal of CUE.
var ErrNoLiteral = errors.New("not a value")

// Literal reads a value as it is written in CUE, of which JSON is a part. It errs with
// ErrNoLiteral, or says what else is wrong with a hint.
func Literal(text string) (Value, error) {
	if largeExponent.MatchString(text) {
		return Value{}, ErrNoLiteral
	}
	e, err := parser.ParseExpr("value", text)
	if err != nil || !plain(e) {
		if err == nil && isStruct(e) {
			return Value{}, schema.Hintf("set each of its fields: FIELD.NAME", "%q is a struct, and one value is set at a time", text)
		}
		if list, isList := e.(*ast.ListLit); isList && err == nil && slices.ContainsFunc(list.Elts, isStruct) {
			return Value{}, schema.Hintf("change it in the file", "%q is a list of structs, and a list that is set has values alone, such as [\"a\", \"b\"]", text)
		}
		return Value{}, ErrNoLiteral
	}
	b, err := cuecontext.New().BuildExpr(e).MarshalJSON()
	if err != nil {
		return Value{}, ErrNoLiteral
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v := Value{CUE: strings.TrimSpace(text)}
	if err := d.Decode(&v.Data); err != nil || v.Data == nil {
		return Value{}, schema.Hintf("to unset a field, remove its line", "%q is no value of a field", text)
	}
	return v, nil
}

func isStruct(e ast.Expr) bool {
	_, is := e.(*ast.StructLit)
	return is
}

// largeExponent is in numbers that take more memory than there is.
var largeExponent = lazyregexp.New(`[0-9.][eE][-+]?[0-9_]{4}`)

// IsQuoted reports whether text is one literal in quotes.
func IsQuoted(text string) bool {
	_, err := literal.Unquote(text)
	return err == nil && strings.HasPrefix(text, `"`)
}

// plain reports whether an expression is a literal, or a list of them.
func plain(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return !strings.HasPrefix(e.Value, "'") // which is no text
	case *ast.UnaryExpr:
		_, isLiteral := e.X.(*ast.BasicLit)
		return isLiteral && (e.Op == token.SUB || e.Op == token.ADD)
	case *ast.ListLit:
		for _, elem := range e.Elts {
			if !plain(elem) {
				return false
			}
		}
		return true
	}
	return false
}

// references returns what an expression that is not constant refers to, in its order.
func references(e ast.Node) (names []string) {
	ast.Walk(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if !constant(n) && !slices.Contains(names, n.Name) {
				names = append(names, n.Name)
			}
		case *ast.SelectorExpr:
			names = append(names, references(n.X)...)
			return false
		case *ast.Field:
			names = append(names, references(n.Value)...)
			return false
		}
		return true
	}, nil)
	return names
}

// constant reports whether an expression refers to nothing but CUE's own types.
func constant(e ast.Node) bool {
	ok := true
	ast.Walk(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			switch n.Name {
			case "int", "string", "bool", "number", "float", "_":
			default:
				ok = false
			}
		case *ast.Interpolation, *ast.CallExpr, *ast.SelectorExpr, *ast.Comprehension:
			ok = false
		case *ast.Field:
			return ok && constant(n.Value) // its label is no reference
		}
		return ok
	}, nil)
	return ok
}
