package edit

import (
	"bytes"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema/lazyregexp"
)

func formatNode(n ast.Node) (string, error) {
	b, err := format.Node(n)
	return string(b), err
}

// Insert returns src with the field of an object set that the object itself does not set,
// or sets as a default. A name that begins with # is that of a parameter. matched is how many
// names of the field's path the text has already: of several files the one with the most is the
// place. It is negative if the object is not written there.
func Insert(name string, src []byte, object, field []string, v Value) (out []byte, matched int, err error) {
	defer func() { err = errOf(recover(), name, err) }()
	f, err := parser.ParseFile(name, src, parser.ParseComments)
	if err != nil {
		return nil, -1, err
	}
	best := place{matched: -1}
	for _, p := range places(f.Decls, object, place{}) {
		if found := p.descend(field); found.matched > best.matched {
			best = found
		}
	}
	if best.matched < 0 {
		return nil, -1, nil
	}
	if best.matched == len(field) { // it is a default there
		if !constant(best.value) {
			return nil, -1, nil
		}
		out, err = formatted(src, spanOf(best.value).replace(src, v.CUE))
		return out, best.matched, err
	}
	out, err = formatted(src, best.insert(src, field[best.matched:], v))
	return out, best.matched, err
}

// place is where something is written: the value of a field, within what has braces.
type place struct {
	value   ast.Expr
	braces  *ast.StructLit // nil for the file
	elt     ast.Decl       // of braces, or of the file, that holds the value
	names   []string       // from there to value
	matched int
}

// places returns the values of what has a path in decls.
func places(decls []ast.Decl, at []string, p place) (out []place) {
	for _, d := range decls {
		f, ok := d.(*ast.Field)
		if !ok || f.Value == nil {
			continue
		}
		name, _, err := ast.LabelName(f.Label)
		if err != nil || name != at[0] {
			continue
		}
		next := place{value: f.Value, braces: p.braces, elt: p.elt, names: append(append([]string{}, p.names...), name)}
		if p.elt == nil {
			next.elt = d
		}
		if len(at) == 1 {
			out = append(out, next)
			continue
		}
		if s, ok := f.Value.(*ast.StructLit); ok {
			if s.Lbrace.IsValid() {
				next = place{braces: s}
			}
			out = append(out, places(s.Elts, at[1:], next)...)
		}
	}
	return out
}

// structs returns the structs that are written in an expression of which all parts hold.
func structs(e ast.Expr) (out []*ast.StructLit) {
	switch e := e.(type) {
	case *ast.StructLit:
		return []*ast.StructLit{e}
	case *ast.ParenExpr:
		return structs(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			return append(structs(e.X), structs(e.Y)...)
		}
	}
	return nil
}

// descend follows the names of a field as far as they are written.
func (p place) descend(field []string) place {
	if p.matched == len(field) {
		return p
	}
	best := p
	for _, s := range structs(p.value) {
		within := place{braces: s}
		if !s.Lbrace.IsValid() {
			within = place{braces: p.braces, elt: p.elt, names: p.names}
		}
		for _, next := range places(s.Elts, field[p.matched:p.matched+1], within) {
			next.matched = p.matched + 1
			if found := next.descend(field); found.matched > best.matched {
				best = found
			}
		}
	}
	return best
}

// insert writes a field into the value of p.
func (p place) insert(src []byte, field []string, v Value) []byte {
	all := structs(p.value)
	if len(all) == 0 {
		end := p.value.End().Offset()
		return span{end, end}.replace(src, " & {"+chain(field)+v.CUE+"}")
	}
	s := all[len(all)-1]
	if !s.Lbrace.IsValid() {
		return after(src, p.elt, chain(append(append([]string{}, p.names...), field...))+v.CUE)
	}
	var last ast.Decl
	for _, d := range s.Elts {
		if _, more := d.(*ast.Ellipsis); !more {
			last = d
		}
	}
	if last != nil {
		return after(src, last, chain(field)+v.CUE)
	}
	begin := s.Lbrace.Offset() + 1
	text := chain(field) + v.CUE
	if end := bytes.IndexByte(src[begin:], '\n'); s.Rbrace.Line() > s.Lbrace.Line() && end >= 0 {
		at := begin + end + 1
		return span{at, at}.replace(src, indentation(src, begin)+"\t"+text+"\n")
	} else if len(s.Elts) > 0 {
		text += ", "
	}
	return span{begin, begin}.replace(src, text)
}

// after writes text behind a declaration: in a line of its own if the declaration ends its
// line, else behind a comma.
func after(src []byte, d ast.Decl, text string) []byte {
	end := d.End().Offset()
	rest := src[end:]
	line := len(rest)
	if n := bytes.IndexByte(rest, '\n'); n >= 0 {
		line = n
	}
	behind := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(rest[:line])), ","))
	if behind != "" && !strings.HasPrefix(behind, "//") {
		return span{end, end}.replace(src, ", "+text)
	}
	if line == len(rest) {
		return append(append([]byte{}, src...), "\n"+indentation(src, d.Pos().Offset())+text+"\n"...)
	}
	at := end + line + 1
	return span{at, at}.replace(src, indentation(src, d.Pos().Offset())+text+"\n")
}

// indentation returns the white space that the line of an offset begins with.
func indentation(src []byte, at int) string {
	from := bytes.LastIndexByte(src[:at], '\n') + 1
	line := src[from:at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// parameter is the name of a definition, which is no data.
var parameter = lazyregexp.New(`^#[A-Za-z][A-Za-z0-9_]*$`)

// chain returns names as the labels of fields within each other.
func chain(names []string) string {
	var b strings.Builder
	for _, n := range names {
		if ast.StringLabelNeedsQuoting(n) && !parameter.MatchString(n) {
			n = literal.String.Quote(n)
		}
		b.WriteString(n + ": ")
	}
	return b.String()
}
