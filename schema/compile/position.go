package compile

import (
	"cmp"
	"iter"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/compile/walk"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

// positions finds where in the user's files a piece of data was written.
type positions struct {
	from   *loaded
	files  []*ast.File // own files first, then those of directories above
	fields map[schema.Position]*ast.Field
	spans  spans                         // of the values of fields
	labels map[[2]string]schema.Position // of objects, by kind and name
	bodies map[[2]string][]ast.Expr      // what is written of these
	data   *embeds
	all    []*ast.File // files, and what they embed
}

func newPositions(l *loaded) *positions {
	p := &positions{from: l, data: newEmbeds(l.inst, l.req.Files)}
	for _, f := range l.inst.Files {
		if p.mine(strings.TrimPrefix(f.Filename, "/")) {
			p.files = append(p.files, f)
		}
	}
	for _, f := range l.inst.Files {
		if !p.mine(strings.TrimPrefix(f.Filename, "/")) {
			p.files = append(p.files, f)
		}
	}
	return p
}

// mine reports whether a file lies in the package's own directory, or is embedded there.
func (p *positions) mine(name string) bool {
	return path.Dir(name) == p.from.dir || name != "" && !strings.HasSuffix(name, ".cue") && p.data.embeds(p.from.dir, name)
}

// index maps the positions of labels and values to their fields, in all files
// that the package was made of. It is built when there is a first mistake.
func (p *positions) index() map[schema.Position]*ast.Field {
	if p.fields != nil {
		return p.fields
	}
	p.fields, p.spans = map[schema.Position]*ast.Field{}, spans{}
	for _, f := range allFiles(p.from.inst) {
		ast.Walk(f, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && field.Value != nil {
				p.fields[position(field.Label.Pos())] = field
				p.fields[position(field.Value.Pos())] = field
				p.spans.add(field)
			}
			return true
		}, nil)
	}
	delete(p.fields, schema.Position{}) // what an alias of YAML repeats has no place
	return p.fields
}

// of returns the position of the data at a path: of its label if key is set,
// else of its value; if it was written nowhere, that of what encloses it.
func (p *positions) of(at []string, key bool) schema.Position {
	for n := len(at); n > 0; n-- {
		key = key || n < len(at)
		if f := p.written(at[:n]); f != nil {
			if pos, ok := p.row(f, at[:n], key); ok {
				return pos
			}
			return edge(f, key)
		}
		if pos, ok := p.evaluated(at[:n], key); ok {
			return pos
		}
	}
	if own := filesOf(p.from.req.Files, p.from.dir); len(own) > 0 {
		return schema.Position{Path: own[0], Line: 1, Column: 1}
	}
	return schema.Position{Path: moduleFile, Line: 1, Column: 1}
}

// labelled returns the labels of all that gives the value at a path, where they have its
// name: those of the package itself and of what it imports.
func (p *positions) labelled(at []string) (out []schema.Position) {
	name := at[len(at)-1]
	for _, leaf := range trace.Leaves(p.value(at)) {
		f, ok := p.index()[valueAt(leaf)]
		if !ok {
			f, ok = leaf.Source().(*ast.Field) // of a file that is embedded
		}
		if !ok || lax.Label(f) != name {
			continue
		}
		if label := edge(f, true); label.Path != "" && !p.schema(label.Path) && !slices.Contains(out, label) {
			out = append(out, label)
		}
	}
	for i := range out {
		out[i].Path = p.data.whole(out[i].Path)
	}
	if len(out) == 0 {
		out = append(out, p.of(at, true))
	}
	return out
}

// unnamed returns where an object of a kind stands that has no name.
func (p *positions) unnamed(kind string) schema.Position {
	for _, field := range valid.Of(schema.Kind(kind)).Fields {
		f := p.written([]string{kind, field.Name})
		if f == nil {
			continue
		}
		if h := p.holder(kind, position(f.Label.Pos())); h != nil {
			return position(h.Value.Pos())
		}
	}
	return p.of([]string{kind}, true)
}

// row returns where the value stands that a field takes from elsewhere, such as from a row
// of a table that a comprehension goes through; false if it does not, or from another
// directory.
func (p *positions) row(f *ast.Field, at []string, key bool) (schema.Position, bool) {
	switch f.Value.(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr:
	default:
		return schema.Position{}, false
	}
	v := p.value(at)
	if key || !v.Exists() {
		return schema.Position{}, false
	}
	leaves := []cue.Value{v}
	if op, all := trace.Expr(v); op == cue.AndOp {
		leaves = all
	}
	for _, leaf := range leaves {
		pos := valueAt(cue.Dereference(leaf))
		if pos.Path == "" || pos == position(leaf.Pos()) || strings.HasSuffix(pos.Path, ".cue") && !p.mine(pos.Path) {
			continue
		}
		if f, ok := p.index()[pos]; ok {
			return edge(f, false), true
		}
		return pos, true
	}
	return schema.Position{}, false
}

// origin returns where an object is declared: as of does for its label, but
// without a search of all files for each.
func (p *positions) origin(kind, name string) schema.Position {
	p.declare()
	if pos, ok := p.labels[[2]string{kind, name}]; ok {
		return pos
	}
	at := p.of([]string{kind, name}, true)
	if top := p.of([]string{kind}, true); !p.mine(at.Path) && p.mine(top.Path) {
		return top // where the package takes what a library makes
	}
	return at
}

// declare notes what is declared where, once.
func (p *positions) declare() {
	if p.labels != nil {
		return
	}
	p.labels, p.bodies = map[[2]string]schema.Position{}, map[[2]string][]ast.Expr{}
	for _, f := range p.files {
		p.declared(f.Decls, nil)
	}
}

// places returns where the fields of an object stand that mistakes of other packages may
// show in, by their data path: as of does, but without a search of all files for each.
func (p *positions) places(kind schema.Kind, name string, data map[string]any) map[string]schema.Position {
	p.declare()
	out := map[string]schema.Position{}
	for _, field := range valid.Placed(kind, data) {
		path := strings.Split(field, ".")
		at := slices.Concat([]string{string(kind), name}, path)
		var found []*ast.Field
		for _, body := range p.bodies[[2]string{string(kind), name}] {
			found = append(found, walk.FindIn(body, path)...)
		}
		if len(found) > 0 {
			pos, ok := p.row(found[0], at, false)
			if !ok {
				pos = edge(found[0], false)
			}
			out[field] = pos
			continue
		}
		if v := p.value(at); v.Exists() {
			v, _ = v.Default()
			if pos := valueAt(v); pos.Path != "" && !p.schema(pos.Path) {
				if text, err := v.String(); err == nil && !p.mine(pos.Path) {
					pos = cmp.Or(labelFor(p, at, text), pos)
				}
				out[field] = pos
			}
		}
	}
	return out
}

// declared notes the labels of the objects that decls write down; at is what
// encloses them.
func (p *positions) declared(decls []ast.Decl, at []string) {
	for _, d := range decls {
		f, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		name := lax.Label(f)
		if len(at) == 1 {
			key := [2]string{at[0], name}
			if _, ok := p.labels[key]; !ok {
				p.labels[key] = position(f.Label.Pos())
			}
			p.bodies[key] = append(p.bodies[key], f.Value)
		} else if s, ok := f.Value.(*ast.StructLit); ok {
			p.declared(s.Elts, []string{name})
		}
	}
}

// enclosing returns the position of the label, in the package's own files, of
// what should hold the data at a path and does not.
func (p *positions) enclosing(at []string) schema.Position {
	for n := len(at) - 1; n > 1; n-- {
		if pos := p.of(at[:n], true); p.mine(pos.Path) {
			return pos
		}
	}
	return p.of(at[:min(len(at), 2)], true)
}

// evaluated asks the value itself; a position in the schema does not count.
func (p *positions) evaluated(at []string, key bool) (schema.Position, bool) {
	if pos, ok := p.inData(at, key); ok {
		return pos, true
	}
	v := p.value(at)
	if !v.Exists() {
		return schema.Position{}, false
	}
	pos := position(v.Pos())
	if pos.Path == "" || p.schema(pos.Path) { // which comes first where the package gives a part of it
		pos = p.leaf(at)
	}
	if given := keyGiven(p, v, at[len(at)-1], pos); key && given != pos {
		return given, true
	}
	if f, ok := p.index()[pos]; ok {
		return edge(f, key), true
	}
	return pos, pos.Path != ""
}

// embedded returns the field of a file that the package embeds that gives the data at a path, nil if
// there is none.
func (p *positions) embedded(at []string) *ast.Field {
	for _, leaf := range trace.Leaves(p.value(at)) {
		if f, ok := leaf.Source().(*ast.Field); ok && !strings.HasSuffix(valueAt(leaf).Path, ".cue") && p.mine(valueAt(leaf).Path) {
			return f
		}
	}
	return nil
}

// inData returns where a file that the package embeds gives the data at a path, or its label.
func (p *positions) inData(at []string, key bool) (schema.Position, bool) {
	if !p.data.some(p.from.dir) {
		return schema.Position{}, false
	}
	for _, leaf := range trace.Leaves(p.value(at)) {
		pos := beginning(leaf)
		if f, ok := leaf.Source().(*ast.Field); ok && key && f.Label.Pos().IsValid() {
			pos = position(f.Label.Pos())
		}
		if pos.Path != "" && !strings.HasSuffix(pos.Path, ".cue") && p.mine(pos.Path) {
			return pos, true
		}
	}
	return schema.Position{}, false
}

// value returns the value at a path; one that does not exist if there is none.
func (p *positions) value(at []string) cue.Value {
	if !p.from.built {
		return cue.Value{}
	}
	return trace.Lookup(p.from.value, at, p.from.inst.ID())
}

// schema reports whether a file is of the repository's copy of the definitions,
// seen from outside of it.
func (p *positions) schema(name string) bool {
	return lax.IsDir(path.Dir(name)) && p.from.dir != SchemaDir && lax.IsEmbedded(path.Base(name))
}

// ofError returns the best position of an error, in the package's own files if
// there is one, and the others, without those in the schema.
func (p *positions) ofError(e errors.Error, at []string) (best schema.Position, others []schema.Position) {
	score := -1
	label := ""
	if len(at) > 0 {
		label = strings.Trim(at[len(at)-1], `"`)
	}
	of := label // an element of a list has the place of the list
	for n := len(at) - 1; n > 2 && decimal.MatchString(of); n-- {
		of = strings.Trim(at[n-1], `"`)
	}
	var all []schema.Position
	for _, tp := range errors.Positions(e) {
		pos := position(tp)
		if pos.Path == "" || p.schema(pos.Path) {
			continue
		}
		all = append(all, pos)
		s := 0
		if f, ok := p.index()[pos]; ok && lax.Label(f) == label {
			s = 2
			pos = edge(f, false)
		}
		if p.mine(pos.Path) {
			s++
		}
		if s >= score { // a later position is nearer to the value
			score, best = s, pos
		}
	}
	for _, o := range all {
		if o != best && (p.valueOf(of, o) || p.pattern(o) != nil) && !slices.Contains(others, o) {
			others = append(others, o)
		}
	}
	return best, others
}

// closedAt returns the positions of an error that are the values of definitions,
// outside of the schema.
func (p *positions) closedAt(e errors.Error) (out []schema.Position) {
	for _, tp := range errors.Positions(e) {
		pos := position(tp)
		if f, ok := p.index()[pos]; ok && !p.schema(pos.Path) && strings.HasPrefix(lax.Label(f), "#") {
			out = append(out, position(f.Label.Pos()))
		}
	}
	return out
}

// required returns where the field that an error misses is required: in the repository's
// own CUE, which may be in the directory of the schema.
func (p *positions) required(e errors.Error) (best schema.Position) {
	for _, tp := range errors.Positions(e) {
		pos := position(tp)
		f, ok := p.index()[pos]
		if pos.Path == "" || p.schema(pos.Path) || !ok || f.Constraint != token.NOT {
			continue
		}
		best = position(f.Label.Pos())
	}
	return best
}

// fileAt returns the syntax of the file of a position, an empty one if it is not of the
// package or of what it imports.
func (p *positions) fileAt(at token.Pos) *ast.File {
	return p.fileOf(position(at))
}

// around yields the fields whose value a position lies in: see spans.
func (p *positions) around(at schema.Position) iter.Seq2[schema.Position, *ast.Field] {
	p.index()
	return p.spans.around(at)
}

// holder returns the field of a name whose value a position lies in, nil if there is none.
func (p *positions) holder(label string, at schema.Position) *ast.Field {
	if f, ok := p.index()[at]; ok && lax.Label(f) == label {
		return f
	}
	for _, f := range p.around(at) {
		if lax.Label(f) == label {
			return f
		}
	}
	return nil
}

// valueOf reports whether a position lies in the value of a field of this name.
func (p *positions) valueOf(label string, at schema.Position) bool {
	if f, ok := p.index()[at]; ok {
		return lax.Label(f) == label
	}
	for _, f := range p.around(at) {
		if lax.Label(f) == label {
			return true
		}
	}
	return false
}

// written finds the field that a path was written as, in the package's files.
// Of several the one with a literal value is taken.
func (p *positions) written(at []string) *ast.Field {
	var found []*ast.Field
	for _, wild := range []bool{false, true} {
		if wild && len(at) > 2 && p.written(at[:2]) != nil && !p.computedAt(at[:2]) {
			break // it is written by its name
		}
		find := walk.Find
		if wild {
			find = walk.FindWild
		}
		for _, f := range p.files {
			found = append(found, find(f.Decls, at)...)
		}
		if len(found) > 0 {
			break
		}
	}
	for _, f := range found {
		switch f.Value.(type) {
		case *ast.BasicLit, *ast.UnaryExpr, *ast.ListLit, *ast.Interpolation:
			return f
		}
	}
	if len(found) > 0 {
		return found[0]
	}
	return nil
}

// made returns the labels of the package's own that give all of an object, from a template of another
// package or one that is written as a function.
func (p *positions) made(at []string) (out []schema.Position) {
	var found []*ast.Field
	for _, f := range p.files {
		found = append(found, walk.Find(f.Decls, at)...)
	}
	for _, f := range found {
		s, ok := f.Value.(*ast.SelectorExpr)
		if b, joined := f.Value.(*ast.BinaryExpr); joined {
			s, ok = b.X.(*ast.SelectorExpr)
		}
		if !ok {
			continue
		}
		name, _, _ := ast.LabelName(s.Sel)
		if _, call := s.X.(*ast.ParenExpr); call || strings.HasPrefix(name, "#") {
			out = append(out, position(f.Label.Pos()))
		}
	}
	slices.SortFunc(out, schema.Position.Compare)
	return out
}

// computedAt reports whether nothing is written at a path but by computed labels.
func (p *positions) computedAt(at []string) bool {
	var found []*ast.Field
	for _, f := range p.files {
		found = append(found, walk.Find(f.Decls, at)...)
	}
	return len(found) == 0
}

// filesOf returns the CUE files directly in dir, sorted.
func filesOf(files map[string][]byte, dir string) []string {
	var own []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Dir(name) == dir && strings.HasSuffix(name, ".cue") && !ignored(name) {
			own = append(own, name)
		}
	}
	return own
}

// inName are the characters that a name may have anywhere.
var inName = lazyregexp.New(`^[a-z0-9-]*$`)

// own returns the files of the package, and those of data that it embeds.
func (p *positions) own() []*ast.File {
	if p.all == nil {
		p.all = slices.Concat(p.files, p.data.parsed(p.from.dir))
	}
	return p.all
}

// labelNamed returns where the package itself has a field of a name, if there is one such place.
func (p *positions) labelNamed(name string) schema.Position {
	return p.only(func(n ast.Node) token.Pos {
		if field, ok := n.(*ast.Field); ok && lax.Label(field) == name {
			return field.Label.Pos()
		}
		return token.NoPos
	})
}

// partOf returns where the package itself writes a computed name, or else the part of it that no name may
// have, as a text or a label, if there is one such place.
func (p *positions) partOf(name string) schema.Position {
	whole := p.text(func(text string) bool { return text == name })
	return cmp.Or(whole, p.text(func(text string) bool {
		return text != "" && !inName.MatchString(text) && strings.Contains(name, text)
	}))
}

// text returns where the package itself writes a label or a text that is such, if there is one such place.
func (p *positions) text(is func(string) bool) schema.Position {
	return p.only(func(n ast.Node) token.Pos {
		switch n := n.(type) {
		case *ast.Field:
			if is(lax.Label(n)) {
				return n.Label.Pos()
			}
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && is(s) {
				return n.Pos()
			}
		}
		return token.NoPos
	})
}

// literal returns where the package itself writes a literal, if there is one such place.
func (p *positions) literal(text string) schema.Position {
	return p.only(func(n ast.Node) token.Pos {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Value == text {
			return lit.Pos()
		}
		return token.NoPos
	})
}

// anywhere returns where a field of a name is in the package or in what it imports, without the schema; the
// zero Position if there is none, or several.
func (p *positions) anywhere(name string) (found schema.Position) {
	for at, f := range p.index() {
		label := position(f.Label.Pos())
		if lax.Label(f) != name || p.schema(at.Path) || label == found {
			continue
		}
		if found.Path != "" {
			return schema.Position{}
		}
		found = label
	}
	return found
}

// leaf returns where the package itself says something of the value at a path, the zero Position if it
// does not.
func (p *positions) leaf(at []string) schema.Position {
	for _, v := range trace.Leaves(p.value(at)) {
		if pos := valueAt(v); p.mine(pos.Path) {
			return pos
		}
	}
	return schema.Position{}
}

// only returns the one place of the package's own that is what is looked for, the zero Position if there
// is none, or several.
func (p *positions) only(at func(ast.Node) token.Pos) (found schema.Position) {
	n := 0
	for _, f := range p.own() {
		ast.Walk(f, func(node ast.Node) bool {
			if pos := position(at(node)); p.mine(pos.Path) {
				found, n = pos, n+1
			}
			return true
		}, nil)
	}
	if n != 1 {
		return schema.Position{}
	}
	return found
}
