package compile

import (
	"fmt"
	"slices"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
)

// WrittenImage is the image of a container as a file says it.
type WrittenImage struct {
	schema.Position // of the text; Path is the file's name

	Text string // what the literal stands for
	// Computed says that the image is made of several texts, or written in another
	// file, so that there is no Text, and nothing to replace.
	Computed bool
	// from and to are the offsets of the literal in the file.
	from, to int
}

// Images returns the images that the containers of a file have, in the order in which
// they stand there. It evaluates nothing: it finds the fields image within a field
// container, or within a struct that is unified with #Container, and the texts that are
// their values, also by the name of a field of the same file, or as alternatives. It
// errs when the file cannot be parsed.
func Images(name string, src []byte) (found []WrittenImage, err error) {
	defer func() {
		if p := recover(); p != nil {
			found, err = nil, fmt.Errorf("%s cannot be read: %v", name, p)
		}
	}()
	w := imageFinder{name: name, src: src, seen: map[int]bool{}}
	f, err := parser.ParseFile(name, src)
	if err != nil {
		at := schema.Position{Path: name}
		if p := errors.Positions(err); len(p) > 0 {
			at = w.position(p[0])
		}
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	for _, d := range f.Decls {
		w.decl(d, false)
	}
	slices.SortFunc(w.found, func(a, b WrittenImage) int { return a.from - b.from })
	return w.found, nil
}

// ReplaceImages returns src, which Images was given, with the texts of some images
// replaced, in any order. All else stays as it is, to the byte.
func ReplaceImages(src []byte, with map[WrittenImage]string) []byte {
	var images []WrittenImage
	for img := range with {
		images = append(images, img)
	}
	slices.SortFunc(images, func(a, b WrittenImage) int { return a.from - b.from })
	var out []byte
	at := 0
	for _, img := range images {
		out = append(out, src[at:img.from]...)
		out = append(out, literal.String.Quote(with[img])...)
		at = img.to
	}
	return append(out, src[at:]...)
}

// maxReferences bounds how many names lead to a text; a field may refer to itself.
const maxReferences = 10

// imageFinder walks one file.
type imageFinder struct {
	name  string
	src   []byte
	seen  map[int]bool // by offset: several fields may have the value of one
	found []WrittenImage
	depth int // of references
}

// decl looks at a declaration; inside says that it is one of a container.
func (w *imageFinder) decl(d ast.Decl, inside bool) {
	switch d := d.(type) {
	case *ast.Field:
		name, _, _ := ast.LabelName(d.Label)
		if inside && name == "image" {
			w.image(d.Value, 0)
			return
		}
		w.expr(d.Value, name == "container")
	case *ast.EmbedDecl:
		w.expr(d.Expr, inside)
	case *ast.LetClause:
		w.expr(d.Expr, false)
	case *ast.Comprehension:
		w.expr(d.Value, inside)
	}
}

// expr looks at a value; inside says that it is that of a container.
func (w *imageFinder) expr(e ast.Expr, inside bool) {
	switch e := e.(type) {
	case *ast.StructLit:
		for _, d := range e.Elts {
			w.decl(d, inside)
		}
	case *ast.ListLit:
		for _, elem := range e.Elts {
			w.expr(elem, inside)
		}
	case *ast.Comprehension:
		w.expr(e.Value, inside)
	case *ast.ParenExpr:
		w.expr(e.X, inside)
	case *ast.UnaryExpr:
		w.expr(e.X, inside)
	case *ast.Ident:
		if value := referred(e); inside && value != nil && w.depth < maxReferences {
			w.depth++
			w.expr(value, true)
			w.depth--
		}
	case *ast.BinaryExpr:
		inside = inside || e.Op == token.AND && (isContainer(e.X) || isContainer(e.Y))
		w.expr(e.X, inside)
		w.expr(e.Y, inside)
	}
}

// isContainer reports whether an expression is #Container, of whatever package, or
// unified with it.
func isContainer(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "#Container"
	case *ast.SelectorExpr:
		name, _, _ := ast.LabelName(e.Sel)
		return name == "#Container"
	case *ast.ParenExpr:
		return isContainer(e.X)
	case *ast.BinaryExpr:
		return e.Op == token.AND && (isContainer(e.X) || isContainer(e.Y))
	}
	return false
}

// image notes the texts that an image is said to be, depth references away.
func (w *imageFinder) image(e ast.Expr, depth int) {
	if depth > maxReferences {
		return
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		w.text(e)
		return
	case *ast.ParenExpr:
		w.image(e.X, depth)
		return
	case *ast.UnaryExpr:
		if e.Op == token.MUL { // the default among alternatives
			w.image(e.X, depth)
		}
		return // a bound says nothing
	case *ast.BinaryExpr:
		if e.Op == token.AND || e.Op == token.OR {
			w.image(e.X, depth)
			w.image(e.Y, depth)
			return
		}
	case *ast.Ident:
		if e.Name == "string" || e.Name == "_" {
			return
		}
		if value := referred(e); value != nil {
			w.image(value, depth+1)
			return
		}
	}
	from := e.Pos().Offset()
	w.add(WrittenImage{Position: w.position(e.Pos()), Computed: true, from: from, to: from})
}

// referred returns the value that a name stands for within its file; nil if it is not
// there.
func referred(name *ast.Ident) ast.Expr {
	switch n := name.Node.(type) {
	case *ast.Field:
		return n.Value
	case *ast.LetClause:
		return n.Expr
	case ast.Expr:
		return n
	}
	return nil
}

// text notes a literal.
func (w *imageFinder) text(lit *ast.BasicLit) {
	from := lit.Pos().Offset()
	to := from + len(lit.Value)
	s, err := literal.Unquote(lit.Value)
	if err != nil || lit.Kind != token.STRING || lit.Value[0] == '\'' || to > len(w.src) || string(w.src[from:to]) != lit.Value {
		return // not a text: validate says so
	}
	w.add(WrittenImage{Position: w.position(lit.Pos()), Text: s, from: from, to: to})
}

func (w *imageFinder) add(img WrittenImage) {
	if !w.seen[img.from] {
		w.seen[img.from] = true
		w.found = append(w.found, img)
	}
}

func (w *imageFinder) position(p token.Pos) schema.Position {
	return schema.Position{Path: w.name, Line: p.Line(), Column: p.Column()}
}
