package edit

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
)

// Replace returns src with the value that begins at a place of it replaced. It errs when
// nothing begins there that is one value.
func Replace(src []byte, at schema.Position, v Value) (out []byte, err error) {
	defer func() { err = errOf(recover(), at.Path, err) }()
	switch path.Ext(at.Path) {
	case ".cue":
		return replaceCUE(src, at, v)
	case ".json", ".yaml", ".yml":
		return replaceData(src, at, v)
	}
	return nil, schema.Hintf("change it there", "%s: values in files of this kind cannot be set", at)
}

// errOf makes an error of a panic: parsers have defects, and files are anyone's.
func errOf(panicked any, name string, err error) error {
	if panicked != nil {
		return fmt.Errorf("%s cannot be read: %v", name, panicked)
	}
	return err
}

// span is a piece of a file, by offsets.
type span struct{ from, to int }

func (s span) replace(src []byte, with string) []byte {
	out := make([]byte, 0, len(src)+len(with))
	out = append(out, src[:s.from]...)
	out = append(out, with...)
	return append(out, src[s.to:]...)
}

func spanOf(n ast.Node) span { return span{n.Pos().Offset(), n.End().Offset()} }

func replaceCUE(src []byte, at schema.Position, v Value) ([]byte, error) {
	f, err := parser.ParseFile(at.Path, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var found ast.Expr
	ast.Walk(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if begins(n.Value, at) {
				found = n.Value
			}
		case *ast.LetClause:
			if begins(n.Expr, at) {
				found = n.Expr
			}
		}
		return true
	}, nil)
	if found == nil {
		return nil, schema.Hintf("change it there", "%s: no field has its value there", at)
	}
	where, ok := literalOf(found)
	if !ok {
		from := ""
		if names := references(found); len(names) > 0 {
			from = ", from " + strings.Join(names, ", ")
		}
		return nil, schema.Hintf("change what it is made of; only an expression of literals is replaced", "%s: the value is computed%s", at, from)
	}
	return formatted(src, spanOf(where).replace(src, v.CUE))
}

func begins(e ast.Expr, at schema.Position) bool {
	return e != nil && e.Pos().Line() == at.Line && e.Pos().Column() == at.Column
}

// literalOf returns the one literal that is the value of an expression: what else it is
// joined with stays. It is false for what is computed.
func literalOf(e ast.Expr) (ast.Expr, bool) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return literalOf(x.X)
	case *ast.BinaryExpr:
		if x.Op == token.AND {
			left, isLeft := literalOf(x.X)
			right, isRight := literalOf(x.Y)
			switch {
			case isLeft && !isRight:
				return left, true
			case isRight && !isLeft:
				return right, true
			}
			return nil, false
		}
		return e, constant(e) && x.Op != token.OR
	case *ast.UnaryExpr:
		return e, (x.Op == token.SUB || x.Op == token.ADD) && constant(e)
	case *ast.BasicLit:
		return e, true
	case *ast.ListLit:
		return e, constant(e)
	}
	return nil, false
}

// formatted returns the text after a change, in the format of cue fmt if the text before
// was. It errs when a comment is lost, or the text after is not CUE.
func formatted(before, after []byte) ([]byte, error) {
	clean, err := format.Source(before)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(clean, before) {
		if after, err = format.Source(after); err != nil {
			return nil, err
		}
	}
	if lost, err := lostComment(before, after); err != nil || lost != "" {
		if err == nil {
			err = schema.Hintf("move the comment out of the value", "the change would remove the comment %q", lost)
		}
		return nil, err
	}
	return after, nil
}

// lostComment returns a comment that is in one text and not in the other; "" for none.
func lostComment(before, after []byte) (string, error) {
	count := map[string]int{}
	for i, src := range [][]byte{before, after} {
		f, err := parser.ParseFile("-", src, parser.ParseComments)
		if err != nil {
			return "", err
		}
		ast.Walk(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.Comment); ok {
				count[c.Text] += 1 - 2*i
			}
			return true
		}, nil)
	}
	for text, n := range count {
		if n > 0 {
			return text, nil
		}
	}
	return "", nil
}
