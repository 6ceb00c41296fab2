package compile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/compile/walk"
	"github.com/musterhq/muster/schema/valid"
)

// What libraries declare of a value, found by its syntax.

// pattern returns the field for all names of a form whose value, which is no struct, a position lies
// in; nil if there is none.
func (p *positions) pattern(at schema.Position) *ast.Field {
	var inner *ast.Field
	var begins schema.Position
	for from, f := range p.around(at) {
		if from.Compare(begins) > 0 {
			inner, begins = f, from
		}
	}
	if inner == nil {
		return nil
	}
	if _, ok := inner.Label.(*ast.ListLit); !ok || !plainly(inner.Value) {
		return nil
	}
	return inner
}

// plainly reports whether an expression says alternatives that are types and bounds alone.
func plainly(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != token.OR {
		return false
	}
	plain := true
	ast.Walk(b, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructLit, *ast.ListLit, *ast.SelectorExpr, *ast.CallExpr:
			plain = false
		case *ast.Ident:
			plain = plain && !strings.HasPrefix(n.Name, "#") && !strings.HasPrefix(n.Name, "_")
		}
		return plain
	}, nil)
	return plain
}

// like returns the field of the struct at a path, as the package writes it, whose name is nearly the
// given one, and which no library has; nil if there is none.
func (p *positions) like(at []string, name string) *ast.Field {
	var found []*ast.Field
	for _, f := range p.files {
		if len(at) > 0 {
			found = append(found, walk.Find(f.Decls, at)...)
		}
	}
	known := map[string]bool{}
	for at, f := range p.index() {
		known[lax.Label(f)] = known[lax.Label(f)] || !p.mine(at.Path)
	}
	meant := func(f *ast.Field) bool {
		return !known[lax.Label(f)] && valid.Nearest(lax.Label(f), []string{name}) != ""
	}
	for _, f := range found {
		s, ok := f.Value.(*ast.StructLit)
		if !ok {
			continue
		}
		for _, d := range s.Elts {
			if field, ok := d.(*ast.Field); ok && meant(field) {
				return field
			}
		}
	}
	for _, label := range trace.Names(p.value(at)) {
		if f := p.embedded(append(slices.Clip(at), label)); f != nil && meant(f) {
			return f
		}
	}
	return nil
}

// requiredNamed returns the field of a name that the repository's own libraries require, nil if none
// does, or several do.
func (p *positions) requiredNamed(name string) (found *ast.Field) {
	for at, f := range p.index() {
		if f.Constraint != token.NOT || lax.Label(f) != name || p.schema(at.Path) {
			continue
		}
		if found != nil && found != f {
			return nil
		}
		found = f
	}
	return found
}

// element is known for one of several values, or the elements of a list: of a struct, that it is one.
func (l *loaded) element(e ast.Expr, depth int) ast.Expr {
	if s, ok := l.definition(e).(*ast.StructLit); ok {
		return s
	}
	return l.known(e, depth)
}

// definition returns what a definition of the repository's own is, that is referred to by its name,
// nil if that is not known or is in several places.
func (l *loaded) definition(e ast.Expr) (found ast.Expr) {
	in := instanceOf(l.inst, l.where.fileAt(e.Pos()))
	name := ""
	switch x := e.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		if in == nil {
			return nil
		}
		byPath := map[string]*build.Instance{}
		for _, i := range in.Imports {
			byPath[i.ImportPath] = i
		}
		in = importOf(x.X, byPath)
		name, _, _ = ast.LabelName(x.Sel)
	}
	if in == nil || !strings.HasPrefix(name, "#") {
		return nil
	}
	for _, f := range in.Files {
		for _, d := range f.Decls {
			field, ok := d.(*ast.Field)
			if !ok || lax.Label(field) != name {
				continue
			}
			if found != nil {
				return nil
			}
			found = field.Value
		}
	}
	return found
}

// sayLength says of a list that is shorter than a definition wants it what that wants; f is the field
// that gives it, if one does. It reports whether this is so.
func (l *loaded) sayLength(d *mistake, f *ast.Field, others []schema.Position) bool {
	if f == nil || !l.where.mine(position(f.Value.Pos()).Path) {
		return false
	}
	given, ok := f.Value.(*ast.ListLit)
	for _, at := range append([]schema.Position{d.Position}, others...) {
		want := l.where.index()[at]
		if !ok || want == nil || !terms.Limits(want.Value) || want == f {
			continue
		}
		d.Rule, d.Message, d.Expected = schema.RuleOutOfRange, "the list has "+schema.Count(len(given.Elts), "element"), terms.SayExpr(l.known(want.Value, 0))
		d.Hint, d.Position = "it is declared at "+at.String(), edge(f, false)
		return true
	}
	return false
}

// elements returns the elements of a list, computed ones too, where all are known; nil if
// they are not.
func (l *loaded) elements(e ast.Expr, depth int) (out []ast.Expr) {
	if list, ok := e.(*ast.ListLit); ok && !slices.ContainsFunc(list.Elts, isComputed) {
		for _, elt := range list.Elts {
			out = append(out, l.known(elt, depth+1))
		}
		return out
	}
	it, err := l.inPackage(e).List()
	if err != nil {
		return nil
	}
	for it.Next() {
		lit := literalFor(it.Value())
		if lit == nil {
			return nil
		}
		out = append(out, lit)
	}
	return out
}

// holderOf returns the innermost field whose value a field stands in, nil if there is none.
func (p *positions) holderOf(f *ast.Field) (found *ast.Field) {
	at := position(f.Pos())
	for _, h := range p.index() {
		from, to := position(h.Value.Pos()), position(h.Value.End())
		if h != f && from.Path == at.Path && from.Compare(at) <= 0 && at.Compare(to) < 0 && (found == nil || position(found.Value.Pos()).Compare(from) < 0) {
			found = h
		}
	}
	return found
}

// fileOf is fileAt for a position of ours.
func (p *positions) fileOf(at schema.Position) *ast.File {
	for _, f := range allFiles(p.from.inst) {
		if strings.TrimPrefix(f.Filename, "/") == at.Path {
			return f
		}
	}
	return &ast.File{}
}

// given returns where the package itself gives what a value refers to, false if it does not.
func (p *positions) given(v cue.Value) (schema.Position, bool) {
	for _, o := range trace.Origins(v) {
		at := valueAt(o.Value)
		if !p.mine(at.Path) {
			continue
		}
		if f, ok := p.index()[at]; ok {
			at = edge(f, false)
		}
		return at, true
	}
	return schema.Position{}, false
}

// gives returns the first of some data paths whose value the package itself gives, and where: where it is
// written, else where it is taken from, as of a row of a table. Parameters come last: what a check stands
// under, or takes what it looks at from.
func (p *positions) gives(paths [][]string) (full []string, pos schema.Position, ok bool) {
	isParameter := func(full []string) bool { return strings.HasPrefix(full[len(full)-1], "#") }
	for _, full := range paths {
		if f := p.written(full); f != nil && !isParameter(full) {
			return full, edge(f, false), true
		}
		if pos, ok := p.inData(full, false); ok {
			return full, pos, true
		}
	}
	for _, full := range paths {
		if isParameter(full) {
			continue
		}
		if pos, ok := p.given(p.value(full)); ok {
			return full, pos, true
		}
		if pos := p.leaf(full); pos.Path != "" {
			return full, pos, true
		}
	}
	for _, full := range paths {
		if f := p.written(full); f != nil {
			return full, edge(f, false), true
		}
	}
	return nil, schema.Position{}, false
}

// literalBehind returns the field of the package itself that gives a literal of a kind for the value of a
// mistake, where that is joined from several, as from a row of a table; nil if there is none.
func (l *loaded) literalBehind(d *mistake, kind cue.Kind) (found *ast.Field) {
	defer func() {
		if recover() != nil {
			found = nil // CUE knows no variables of comprehensions
		}
	}()
	f, ok := l.where.index()[d.Position]
	if !ok {
		return nil
	}
	if joined, ok := f.Value.(*ast.BinaryExpr); !ok || joined.Op != token.AND {
		return nil
	}
	for _, leaf := range trace.Leaves(l.value.LookupPath(cue.MakePath(selectors(l, d.Field)...))) {
		to := cue.Dereference(leaf)
		at := valueAt(to)
		if f, ok := l.where.index()[at]; ok && l.where.mine(at.Path) && at != d.Position && to.IncompleteKind()&kind != 0 {
			return f
		}
	}
	return nil
}

// toWritten moves a mistake that shows in a library to where the package writes the value, if it does.
func (l *loaded) toWritten(d *mistake) {
	if labels := l.labels(d.Field); !l.where.mine(d.Path) && len(labels) > 0 {
		if f := l.where.written(labels); f != nil && l.where.mine(position(f.Value.Pos()).Path) {
			d.Position = edge(f, false)
		}
	}
}

// size says how many elements or fields a value has whose bound is for that, "" if it is another one.
func (l *loaded) size(d *mistake, value, bound string) string {
	f, written := l.where.index()[d.Position]
	switch {
	case strings.HasPrefix(value, "{") && strings.HasPrefix(bound, "struct.M"):
		fields, err := cuecontext.New().CompileString(value).Fields()
		n := 0
		for err == nil && fields.Next() {
			n++
		}
		if n == 0 && value != "{}" {
			return "the struct is out of bounds"
		}
		return "the struct has " + schema.Count(n, "field")
	case !strings.HasPrefix(value, "[") || !strings.HasPrefix(bound, "list.M"):
		return ""
	case written:
		if x, ok := f.Value.(*ast.ListLit); ok && !slices.ContainsFunc(x.Elts, isComputed) {
			return "the list has " + schema.Count(len(x.Elts), "element")
		}
	}
	return "the list is out of bounds"
}

// sayShape is of a list where a struct is expected, or the other way round. It reports whether the one
// is written in the package.
func (l *loaded) sayShape(d *mistake, a, b string, others []schema.Position) bool {
	if a == "" || b == "" || a[:1]+b[:1] != "[{" && a[:1]+b[:1] != "{[" {
		return false
	}
	for _, pos := range append([]schema.Position{d.Position}, others...) {
		f, ok := l.where.index()[pos]
		if !ok || !l.where.mine(pos.Path) {
			continue
		}
		if sayWritten(d, f, f.Value) {
			return true
		}
	}
	labels := l.labels(d.Field)
	if f := l.where.written(labels); f != nil && l.where.mine(position(f.Value.Pos()).Path) && sayWritten(d, f, f.Value) {
		return true
	}
	if f := l.where.embedded(labels); f != nil && sayWritten(d, f, f.Value) {
		return true
	}
	f := l.literalBehind(d, cue.ListKind)
	return f != nil && sayWritten(d, f, &ast.ListLit{})
}

// sayWritten says of a mistake that a field is a list and should be a struct, or the other way round. It
// reports false of a value that is written as neither.
func sayWritten(d *mistake, f *ast.Field, value ast.Expr) bool {
	is, want := "a list", "a struct"
	switch value.(type) {
	case *ast.ListLit:
	case *ast.StructLit:
		is, want = want, is
	default:
		return false
	}
	d.Rule, d.Position, d.Message, d.Expected = schema.RuleWrongType, edge(f, false), "is "+is, want
	return true
}

// sayUnset says of what refers to a parameter that is one of several alternatives, and is not given,
// that it is not. It reports whether this is so.
func (l *loaded) sayUnset(d *mistake, at []string, e errors.Error) bool {
	if !l.built || len(at) < 2 || !ambiguous.MatchString(errorText(e)) || valid.Of(schema.Kind(at[0])) == nil && !strings.HasPrefix(at[0], "_") {
		return false
	}
	names := terms.RefAt(l.where.fileAt(e.Position()), e.Position())
	for _, name := range names {
		found := trace.Unset(l.value, name)
		i := slices.IndexFunc(found, func(o trace.Origin) bool { return slices.Contains(labelsOf(o.Path), strings.Trim(at[1], `"`)) })
		if i < 0 {
			continue
		}
		*d = sayNotGiven(l, fieldPath(at[:2]), found[i])
		d.form = absentField
		if u, ok := trace.UnionOf(found[i].Value); ok && u.Structs() {
			d.Expected = wantOf(u)
		}
		return true
	}
	return false
}

// sayUnnamed says of a name that is computed from a field of a parameter, as of a row of a table, that
// the field is not given. It reports whether this is so.
func (l *loaded) sayUnnamed(d *mistake, at []string, e errors.Error) bool {
	if !l.built || len(at) == 0 || !noName.MatchString(errorText(e)) {
		return false
	}
	for _, name := range terms.LabelNames(l.where.fileAt(e.Position()), e.Position()) {
		for _, o := range trace.Unset(l.value, name) {
			declared := l.where.index()[valueAt(o.Value)]
			if declared == nil || !slices.ContainsFunc(errors.Positions(e), func(p token.Pos) bool { return l.where.index()[position(p)] == declared }) {
				continue
			}
			*d = sayNotGiven(l, fieldPath(at[:min(2, len(at))]), o)
			d.form = absentField
			return true
		}
	}
	return false
}

// sayIndex is of a struct that is indexed by a name which it does not have, as {eu: 1}["us"] is: it says
// which names it has. It reports whether this is so, and the package gives the name.
func (l *loaded) sayIndex(d *mistake, at []string, e errors.Error) bool {
	m := undefined.FindStringSubmatch(errorText(e))
	if !l.built || m == nil {
		return false
	}
	of, by, ok := trace.Indexed(trace.Lookup(l.value, at, l.inst.ID()), e.Position())
	if !ok {
		return false
	}
	name := strings.Trim(m[1], `"`)
	pos := l.where.nearest(by)
	if file := l.where.data.whole(pos.Path); !l.begins(schema.Position{Path: file, Line: pos.Line, Column: pos.Column}, name) && !l.writes(pos, strconv.Quote(name)) {
		if s, ok := writtenStruct(l, of, name); ok && s.near == "" && l.where.mine(s.label.Path) {
			return false // which the package is to give the name
		}
		pos = l.where.labelNamed(name) // the variable of a comprehension, which is a label
	}
	names := trace.Names(of)
	if !l.where.mine(pos.Path) || len(names) == 0 {
		return false
	}
	d.Rule, d.Position = schema.RuleInvalidValue, pos
	d.Message, d.Expected = fmt.Sprintf("is %q", name), "one of "+strings.Join(names, ", ")
	if near := valid.Nearest(name, names); near != "" {
		d.Hint = fmt.Sprintf("did you mean %q?", near)
	} else if at := valueAt(of); at.Path != "" {
		d.Hint = fmt.Sprintf("they are declared at %s", valueAt(cue.Dereference(of)))
	}
	return true
}

// nearest returns where the package gives the value that a reference stands for; the zero Position if it
// does not.
func (p *positions) nearest(ref cue.Value) (at schema.Position) {
	defer func() { _ = recover() }() // CUE knows no variables of comprehensions
	if at = valueAt(cue.Dereference(ref)); p.mine(at.Path) && at != position(ref.Pos()) {
		return at
	}
	at, _ = p.given(ref)
	return at
}

// names returns the labels in the package, or in all that it was made of.
func (l *loaded) names(all bool) []string {
	seen := map[string]bool{}
	note := func(in *build.Instance) {
		for _, f := range in.Files {
			ast.Walk(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Field:
					if name := lax.Label(n); name != "" {
						seen[name] = true
					}
				case *ast.LetClause:
					seen[n.Ident.Name] = true
				case *ast.Alias:
					seen[n.Ident.Name] = true
				case *ast.ImportSpec:
					if n.Name != nil {
						seen[n.Name.Name] = true
					}
				}
				return true
			}, nil)
		}
	}
	note(l.inst)
	if all {
		for _, in := range l.inst.Imports {
			note(in)
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// selectable returns the fields of what is selected from at a position, where that is a top level field
// of the package, or lies in one, and is known.
func (l *loaded) selectable(at schema.Position) (out []string) {
	ast.Walk(l.where.fileOf(at), func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || position(s.Sel.Pos()) != at || !l.built {
			return true
		}
		names := terms.Chain(s.X)
		if len(names) == 0 || valid.Of(schema.Kind(names[0])) != nil {
			return false
		}
		v := trace.Lookup(l.value, names, l.inst.ID())
		if !v.Exists() {
			return false
		}
		it, err := v.Fields(cue.Definitions(true)) // those that are not set are not there to be used
		for err == nil && it.Next() {
			out = append(out, strings.TrimRight(it.Selector().String(), "?!"))
		}
		return false
	}, nil)
	return out
}

// topOf returns the definitions of the package that a name is selected from, nil if that is not
// one of the repository's own libraries.
func (l *loaded) topOf(at schema.Position) (out []string) {
	byPath := map[string]*build.Instance{}
	for _, in := range l.inst.Imports {
		byPath[in.ImportPath] = in
	}
	for _, f := range l.where.files {
		ast.Walk(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || position(s.Sel.Pos()) != at {
				return true
			}
			in := importOf(s.X, byPath)
			if in == nil || lax.IsDir(strings.TrimPrefix(in.Dir, "/")) {
				return true
			}
			out = append(out, definitionsIn(in)...)
			return false
		}, nil)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// definitionsOf returns the definitions of a package that is imported.
func (l *loaded) definitionsOf(target string) []string {
	for _, in := range l.inst.Imports {
		if in.ImportPath == target {
			return definitionsIn(in)
		}
	}
	return nil
}

// textAt returns the literal that is written at a position, "" if it is no
// literal.
func (l *loaded) textAt(pos schema.Position) string {
	if f, ok := l.where.index()[pos]; ok {
		switch v := f.Value.(type) {
		case *ast.BasicLit:
			return v.Value
		case *ast.UnaryExpr:
			if x, ok := v.X.(*ast.BasicLit); ok {
				return v.Op.String() + x.Value
			}
		}
	}
	return ""
}

// writes reports whether the literal at a position stands for a value: 1Ki for 1024.
func (l *loaded) writes(pos schema.Position, value string) bool {
	text := l.textAt(pos)
	return text == value || terms.Number(text) == value && value != ""
}

// begins reports whether a text stands at a position.
func (l *loaded) begins(pos schema.Position, text string) bool {
	lines := bytes.SplitN(l.req.Files[pos.Path], []byte("\n"), pos.Line+1)
	return pos.Line > 0 && pos.Line <= len(lines) && pos.Column > 0 && pos.Column <= len(lines[pos.Line-1]) &&
		bytes.HasPrefix(lines[pos.Line-1][pos.Column-1:], []byte(text))
}

// wordAt returns the word of a source line that begins with the name at pos,
// and whether it is called as a function.
func (l *loaded) wordAt(pos schema.Position, name string) (word string, called bool) {
	lines := strings.Split(string(l.req.Files[pos.Path]), "\n")
	if pos.Line < 1 || pos.Line > len(lines) || pos.Column < 1 || pos.Column > len(lines[pos.Line-1]) {
		return name, false
	}
	rest := lines[pos.Line-1][pos.Column-1:]
	if !strings.HasPrefix(rest, name) {
		return name, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("$#_-./:@", r)
	})
	if end < 0 {
		end = len(rest)
	}
	return strings.TrimRight(rest[:end], ":.,"), strings.HasPrefix(rest[len(name):], "(")
}
