package compile

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/valid"
)

// The data of an object has the number of a built-in priority, and policies compare it: priority >= 200. They
// may say the name as jobs do, too: it stands for the number, in what a policy demands of the field priority,
// and where it compares that. A file with policies is read so that such names are numbers: where they are written
// in the field of policies, and nowhere else. Jobs, labels, tests and messages may be made from all else there.

// policyField is the hidden field that holds policies: no data, and open.
const policyField = "_policy"

// priorityField is the field of an object whose names policies may use.
const priorityField = "priority"

// withPriorities returns a function that parses a file as parse does, and has numbers for the names of
// priorities in the policies of the directory dir, not in its tests.
func withPriorities(dir string, parse func(string, any, parser.Config) (*ast.File, error)) func(string, any, parser.Config) (*ast.File, error) {
	if parse == nil {
		parse = func(file string, src any, cfg parser.Config) (*ast.File, error) {
			return parser.ParseFile(file, src, cfg)
		}
	}
	return func(file string, src any, cfg parser.Config) (*ast.File, error) {
		f, err := parse(file, src, cfg)
		if err != nil || path.Dir(strings.TrimPrefix(file, "/")) != dir || strings.HasSuffix(file, "_test.cue") {
			return f, err
		}
		for _, d := range f.Decls {
			field, ok := d.(*ast.Field)
			if !ok {
				continue
			}
			if id, ok := field.Label.(*ast.Ident); ok && id.Name == policyField {
				numberPriorities(field)
			}
		}
		return f, nil
	}
}

// numberPriorities replaces the names of priorities in a field of policies.
func numberPriorities(top *ast.Field) {
	p := priorities{top: top, of: map[ast.Node]bool{}}
	ast.Walk(top, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && valid.Of(schema.Kind(lax.Label(f))).Has(priorityField) {
			p.find(f.Value)
		}
		return true
	}, nil)
	for range 2 { // a name for a name
		ast.Walk(top, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				p.of[n.Value] = p.of[n.Value] || n.Value != nil && p.is(n.Value)
			case *ast.LetClause:
				p.of[n] = p.is(n.Expr)
			}
			return true
		}, nil)
	}
	ast.Walk(top, func(n ast.Node) bool {
		p.number(n)
		return true
	}, nil)
}

// priorities are what is the priority of an object in a field of policies: of are the nodes that
// identifiers stand for.
type priorities struct {
	top *ast.Field
	of  map[ast.Node]bool
}

// find adds those of an object.
func (p priorities) find(e ast.Expr) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		p.find(e.X)
	case *ast.BinaryExpr:
		p.find(e.X)
		p.find(e.Y)
	case *ast.StructLit:
		for _, d := range e.Elts {
			switch d := d.(type) {
			case *ast.EmbedDecl:
				p.find(d.Expr)
			case *ast.Comprehension:
				p.find(d.Value)
			case *ast.Field:
				if lax.Label(d) == priorityField && d.Value != nil {
					d.Value = p.numbered(d.Value)
					p.of[d.Value] = true
					p.of[d] = true
				}
			}
		}
	}
}

// is reports whether an expression is the priority of an object.
func (p priorities) is(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return p.is(e.X)
	case *ast.Ident:
		return e.Node != nil && p.of[e.Node] || e.Name == priorityField && p.of[declaredAs(e)]
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(e.Sel)
		of, ok := e.X.(*ast.Ident)
		return err == nil && ok && name == priorityField && valid.Of(schema.Kind(of.Name)).Has(priorityField)
	}
	return false
}

// declaredAs returns the field that an identifier refers to; nil if it is none.
func declaredAs(id *ast.Ident) ast.Node {
	s, ok := id.Scope.(*ast.StructLit)
	if !ok {
		return nil
	}
	for _, d := range s.Elts {
		if f, ok := d.(*ast.Field); ok && lax.Label(f) == id.Name {
			return f
		}
	}
	return nil
}

// number replaces the names that a node compares a priority with.
func (p priorities) number(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		x, y := p.is(n.X), p.is(n.Y)
		if y {
			n.X = p.numbered(n.X)
		}
		if x {
			n.Y = p.numbered(n.Y)
		}
	case *ast.CallExpr:
		if slices.ContainsFunc(n.Args, p.is) {
			for i := range n.Args {
				n.Args[i] = p.numbered(n.Args[i])
			}
		}
	}
}

// numbered returns an expression with the numbers of the built-in priorities that it names. A name may be
// that of a text, also in the field of policies.
func (p priorities) numbered(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.BasicLit:
		if n, ok := floorOf(e); ok {
			return &ast.BasicLit{ValuePos: e.ValuePos, Kind: token.INT, Value: n}
		}
	case *ast.Ident:
		if lit, ok := e.Node.(*ast.BasicLit); ok && p.within(lit) {
			if n, ok := floorOf(lit); ok {
				return &ast.BasicLit{ValuePos: e.NamePos, Kind: token.INT, Value: n}
			}
		}
	case *ast.ParenExpr:
		e.X = p.numbered(e.X)
	case *ast.UnaryExpr:
		e.X = p.numbered(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.OR || e.Op == token.AND {
			e.X, e.Y = p.numbered(e.X), p.numbered(e.Y)
		}
	case *ast.ListLit:
		for i := range e.Elts {
			e.Elts[i] = p.numbered(e.Elts[i])
		}
	}
	return e
}

// within reports whether a node is written in the field of policies.
func (p priorities) within(n ast.Node) bool {
	at := n.Pos().Offset()
	return p.top.Pos().Offset() <= at && at < p.top.End().Offset()
}

// floorOf returns the number of the built-in priority that a literal names.
func floorOf(lit *ast.BasicLit) (number string, ok bool) {
	word, err := literal.Unquote(lit.Value)
	if lit.Kind != token.STRING || err != nil {
		return "", false
	}
	floor, ok := schema.Band(word).Floor()
	return strconv.Itoa(int(floor)), ok
}

// priorityText says which priority an object has in its data; "" if that is a name.
func priorityText(o *object) string {
	data, err := valid.Parse(o.Data)
	fields, ok := data.(map[string]any)
	if err != nil || !ok {
		return ""
	}
	n, err := strconv.Atoi(fmt.Sprint(fields[priorityField]))
	if err != nil {
		return ""
	}
	name := ""
	if band := schema.Priority(n).Band(); n%100 == 0 {
		name = fmt.Sprintf(" (%s)", band)
	}
	return fmt.Sprintf("the priority is %d%s; ", n, name)
}
