package edit

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
)

// Name is a field that has got another name.
type Name struct {
	In       string // the field that holds it, such as update
	From, To string
}

// Rename returns src with the new names of fields, and of what refers to them; left are the
// places of names that stay, since the text does not say that they are these fields. Certain
// reports what is known of the label at a place: it is such a field, whatever holds it.
func Rename(name string, src []byte, names []Name, certain func(schema.Position) bool) (out []byte, left []schema.Position, err error) {
	defer func() { err = errOf(recover(), name, err) }()
	f, err := parser.ParseFile(name, src, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	r := &renaming{name: name, names: names, certain: certain, values: map[ast.Node]string{}}
	r.decls(f.Decls, "")
	ast.Walk(f, r.reference, nil)
	slices.SortFunc(r.edits, func(a, b change) int { return b.from - a.from })
	out = src
	for _, e := range r.edits {
		out = e.replace(out, e.with)
	}
	if len(r.edits) > 0 {
		out, err = formatted(src, out)
	}
	return out, r.left, err
}

// RenameData returns src, a file of YAML or JSON, with new names of the fields whose labels are at some places.
// All else stays, byte for byte. It errs when no former name stands there as a label that can be changed alone.
func RenameData(name string, src []byte, at []schema.Position, names []Name) (out []byte, err error) {
	defer func() { err = errOf(recover(), name, err) }()
	at = slices.SortedFunc(slices.Values(at), func(a, b schema.Position) int { return b.Compare(a) }) // from the end
	for _, place := range slices.Compact(at) {
		if src, err = renameLabel(name, src, place, names); err != nil {
			return nil, err
		}
	}
	return src, nil
}

func renameLabel(name string, src []byte, at schema.Position, names []Name) ([]byte, error) {
	before, err := leaves(name, src)
	if err != nil {
		return nil, err
	}
	from, ok := offset(src, at)
	shared := false
	for _, n := range names {
		for _, quote := range []string{"", `"`, "'"} {
			old := quote + n.From + quote
			if !ok || !bytes.HasPrefix(src[from:], []byte(old)) {
				continue
			}
			out := span{from, from + len(old)}.replace(src, quote+n.To+quote)
			after, err := leaves(name, out)
			if err != nil {
				continue
			}
			switch n, only := labels(before, after, n); {
			case only && n == 1:
				return out, nil
			case only && n > 1:
				shared = true
			}
		}
	}
	if shared {
		return nil, schema.Hintf("change it there", "%s: an alias of YAML has this label elsewhere, too", at)
	}
	return nil, schema.Hintf("change it there", "%s: no label stands there that can be changed alone", at)
}

// labels returns how many fields of two files have another name, and whether they say the same else.
func labels(before, after []leaf, n Name) (changed int, only bool) {
	if len(before) != len(after) {
		return 0, false
	}
	for i, b := range before {
		if b == after[i] {
			continue
		}
		if changed++; b != (leaf{kind: "label", value: n.From}) || after[i] != (leaf{kind: "label", value: n.To}) {
			return changed, false
		}
	}
	return changed, true
}

type change struct {
	span
	with string
}

type renaming struct {
	name    string
	names   []Name
	certain func(schema.Position) bool
	values  map[ast.Node]string // of renamed fields: what a reference to one is called now
	edits   []change
	left    []schema.Position
}

// decls renames the fields in what the field in holds.
func (r *renaming) decls(decls []ast.Decl, in string) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			name, _, err := ast.LabelName(d.Label)
			if err != nil {
				name = "" // computed
			}
			r.label(d, name, in)
			r.expr(d.Value, name)
		case *ast.EmbedDecl:
			r.expr(d.Expr, in)
		case *ast.Comprehension:
			r.expr(d.Value, in)
		case *ast.LetClause:
			r.expr(d.Expr, d.Ident.Name)
		}
	}
}

func (r *renaming) expr(e ast.Expr, in string) {
	switch e := e.(type) {
	case *ast.StructLit:
		r.decls(e.Elts, in)
	case *ast.BinaryExpr:
		r.expr(e.X, in)
		r.expr(e.Y, in)
	case *ast.ParenExpr:
		r.expr(e.X, in)
	case *ast.UnaryExpr:
		r.expr(e.X, in)
	case *ast.Alias:
		r.expr(e.Expr, in)
	case *ast.ListLit:
		for _, elt := range e.Elts {
			r.expr(elt, "")
		}
	case *ast.Comprehension:
		r.expr(e.Value, in)
	case *ast.CallExpr:
		for _, arg := range e.Args {
			r.expr(arg, "")
		}
	}
}

func (r *renaming) at(n ast.Node) schema.Position {
	return schema.Position{Path: r.name, Line: n.Pos().Line(), Column: n.Pos().Column()}
}

// label renames one field.
func (r *renaming) label(f *ast.Field, name, in string) {
	for _, n := range r.names {
		if name != n.From {
			continue
		}
		if in != n.In && !r.certain(r.at(f.Label)) {
			r.left = append(r.left, r.at(f.Label))
			return
		}
		label := ast.Node(f.Label)
		value := f.Value
		if a, ok := f.Label.(*ast.Alias); ok {
			label = a.Expr
		}
		if a, ok := value.(*ast.Alias); ok {
			value = a.Expr
		}
		r.values[value] = n.To
		r.edits = append(r.edits, change{spanOf(label), quotedAs(label, n.To)})
		return
	}
}

// quotedAs returns a name in quotes if a node has it so.
func quotedAs(n ast.Node, name string) string {
	if _, ok := n.(*ast.BasicLit); ok {
		return strconv.Quote(name)
	}
	return name
}

// reference renames what refers to a field.
func (r *renaming) reference(n ast.Node) bool {
	var of ast.Expr
	var name ast.Node
	switch n := n.(type) {
	case *ast.Ident:
		if to, ok := r.values[n.Node]; ok && n.Node != nil && r.isFormer(n.Name) {
			r.edits = append(r.edits, change{spanOf(n), to})
		}
		return true
	case *ast.SelectorExpr:
		of, name = n.X, n.Sel
	case *ast.IndexExpr:
		if lit, ok := n.Index.(*ast.BasicLit); !ok || lit.Kind != token.STRING {
			return true
		}
		of, name = n.X, n.Index
	default:
		return true
	}
	for _, to := range r.names {
		if nameOf(name) != to.From {
			continue
		}
		if lastName(of) == to.In {
			r.edits = append(r.edits, change{spanOf(name), quotedAs(name, to.To)})
		} else {
			r.left = append(r.left, r.at(name))
		}
	}
	return true
}

func (r *renaming) isFormer(name string) bool {
	return slices.ContainsFunc(r.names, func(n Name) bool { return n.From == name })
}

// nameOf returns the name that a selector or an index selects by.
func nameOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.Ident:
		return n.Name
	case *ast.BasicLit:
		return strings.Trim(n.Value, `"`)
	}
	return ""
}

// lastName returns the name of the field that an expression selects.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return nameOf(e.Sel)
	case *ast.IndexExpr:
		return nameOf(e.Index)
	case *ast.ParenExpr:
		return lastName(e.X)
	}
	return ""
}
