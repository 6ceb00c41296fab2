package compile

import (
	"fmt"
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
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/valid"
)

// answer finds the sources of an object of a package. What is said of a package that has errors
// is what CUE still knows of it, with its errors.
func answer(req request, strict *loaded) (resp response) {
	q := req.Ask
	top := []string{string(q.Kind), q.Name}
	l, blanks := strict, map[schema.Position]bool(nil)
	if !l.where.value(top).Exists() && len(strict.errs) > 0 {
		var m *recovery
		if l, m = firm(req, strict); l == nil {
			return response{Unasked: "package", Diagnostics: objects(req, strict, nil).Diagnostics}
		}
		blanks = m.blanks
	}
	if !l.where.value(top).Exists() {
		return response{Unasked: "object"}
	}
	x := &exporter{left: req.Limits.OutputBytes}
	given := x.draft(valid.Of(q.Kind), l.where.value(top))
	data, _ := valid.Object(q.Kind, q.Name, given)
	if data == nil || len(strict.errs) > 0 {
		resp.Diagnostics = slices.DeleteFunc(objects(req, strict, nil).Diagnostics, func(d schema.Diagnostic) bool {
			of := objectOf(d.Field)
			return !isError(d) || of != fieldPath(top) && strings.Contains(of, ".") && isKindName(strings.Split(of, ".")[0]) // it is of another object
		})
	}
	if data == nil {
		if data = valid.Draft(q.Kind, given); data == nil {
			resp.Unasked = "secret"
			return resp
		}
	}
	resp.User, _ = data["user"].(string)
	delete(data, "name")
	w := &sourcing{l: l, texts: strict.where, blanks: blanks, q: q, given: given, errs: resp.Diagnostics}
	w.walk(nil, any(data), given)
	resp.Sources, resp.Definitions = w.out, definitionsOf(l.where.value(top))
	if isWhole(given) {
		resp.Given = schema.Canonical(given)
	}
	return resp
}

// firm evaluates a package with its own definitions, but without the names and imports that CUE
// does not know, for which it gives up all of a package; nil if a file does not parse.
func firm(req request, strict *loaded) (*loaded, *recovery) {
	_, wide, m := relaxed(req, strict)
	if wide == nil {
		return nil, nil
	}
	m.firm = true
	if l := loadPackage(req, req.Dir, m); l.built {
		return l, m
	}
	return wide, m
}

// draft returns the data of an object as plain does. Where CUE does not list the fields of a struct, since
// something else is wrong with it, they are those that r has.
func (x *exporter) draft(r *valid.Rule, v cue.Value) any {
	data := x.plain(v, 0)
	_, broken := data.(valid.Broken)
	fields, _ := data.(map[string]any)
	if !broken && fields == nil || r == nil || len(r.Fields) == 0 {
		return data
	}
	out := map[string]any{}
	maps.Copy(out, fields)
	for i := range r.Fields {
		name := r.Fields[i].Name
		if at := v.LookupPath(cue.MakePath(cue.Str(name))); at.Exists() && (broken || !isWhole(fields[name])) {
			out[name] = x.draft(r.Fields[i].Rule, at)
		}
	}
	if broken && len(out) == 0 {
		return data
	}
	return out
}

// sourcing finds the sources of the fields of an object.
type sourcing struct {
	l      *loaded
	texts  *positions               // of the files as they are written
	blanks map[schema.Position]bool // what is left out of l
	q      *question
	given  any
	errs   []schema.Diagnostic
	out    []FieldSource
}

// walk goes through a value of the data, and what is given of it: which may have fields that no
// object has.
func (w *sourcing) walk(at []string, v, given any) {
	m, ok := v.(map[string]any)
	beside, _ := given.(map[string]any)
	if ok && len(m)+len(beside) > 0 {
		for _, name := range sortedKeys(m) {
			step := append(slices.Clone(at), name)
			written := valid.Given(w.q.Kind, w.given, step)
			w.walk(step, m[name], beside[written[len(written)-1]])
		}
		for _, name := range sortedKeys(beside) {
			_, known := m[name]
			if _, former := valid.Formers()[name]; !known && !former {
				w.walk(append(slices.Clone(at), name), beside[name], nil)
			}
		}
		return
	}
	if len(at) > 0 {
		w.field(at, v)
	}
}

// field notes the sources of a field.
func (w *sourcing) field(at []string, v any) {
	top := []string{string(w.q.Kind), w.q.Name}
	dataPath := func(at []string) string { return fieldPath(slices.Concat(top, at))[len(fieldPath(top))+1:] }
	written := valid.Given(w.q.Kind, w.given, at)
	field, former := dataPath(at), dataPath(written)
	if w.q.Field != "" && !within(field, w.q.Field) && !within(former, w.q.Field) {
		return
	}
	full := slices.Concat(top, written)
	s := FieldSource{Field: field, Places: w.contributions(full)}
	if isWhole(v) {
		s.Value = terms.Clip(string(schema.Canonical(v)))
	}
	for _, d := range w.errs { // that of the field itself before that of what the value is taken from
		if within(d.Field, fieldPath(full)) {
			s.Error, s.Hint = d.Message, d.Hint
			break
		}
		if s.Error == "" && s.Value == "" && slices.ContainsFunc(s.Places, func(c Contribution) bool { return c.Position == d.Position }) {
			s.Error, s.Hint = d.Message, d.Hint
		}
	}
	for i := 0; i < len(w.errs) && s.Error == "" && s.Value == ""; i++ {
		if d := w.errs[i]; within(fieldPath(full), d.Field) {
			s.Error = fmt.Sprintf("has no value because of the mistake at %s", d.Position)
		}
	}
	if f, ok := valid.Formers()[written[len(written)-1]]; ok && former != field {
		s.Deprecated = f.Replaced()
	}
	w.out = append(w.out, s)
}

// contributions returns the places of the value at a path: those of the package itself
// first, then those of what it imports, then those of the schema.
func (w *sourcing) contributions(at []string) []Contribution {
	v := w.l.where.value(at)
	unset := Contribution{Role: Schema, Position: declaredAt(w.l, at), Text: "the default of the schema"}
	if !v.Exists() {
		return []Contribution{unset}
	}
	g := &gathering{l: w.l, texts: w.texts, blanks: w.blanks, at: at}
	for _, leaf := range trace.Leaves(v) {
		g.leaf(leaf, 0)
	}
	g.passed()
	out := g.out
	if !v.IsConcrete() && !slices.ContainsFunc(out, func(c Contribution) bool { return c.Role != Limit }) {
		out = append(out, unset)
	}
	rank := func(c Contribution) int {
		switch in := path.Dir(c.Path); {
		case c.Role == Schema:
			return 3
		case in == w.l.dir || !strings.HasSuffix(c.Path, ".cue"):
			return 0
		case lax.IsDir(in):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Contribution) int { return rank(a) - rank(b) })
	return out
}

// gathering gathers the places of a value.
type gathering struct {
	l      *loaded
	at     []string // the data path of the value
	texts  *positions
	blanks map[schema.Position]bool
	out    []Contribution
	used   bool // they are of what the value is computed from
}

// add notes a place, once.
func (g *gathering) add(c Contribution) {
	if f, ok := g.texts.index()[c.Position]; ok && (c.Role == Limit || c.Role == Refers) {
		c.Text = terms.Clip(terms.Text(f.Value)) // all that is written there
	}
	if g.used {
		if c.Role == Limit {
			return
		}
		c.Role = Used
	}
	same := func(o Contribution) bool {
		if c.Role == Limit { // what is joined within one field
			return o.Role == Limit && o.Path == c.Path && o.Line == c.Line
		}
		return o.Position == c.Position && (o.Role == c.Role || c.Role == Used)
	}
	if c.Path != "" && !slices.ContainsFunc(g.out, same) {
		g.out = append(g.out, c)
	}
}

// leaf notes the place of one of what a value is joined of; if that is a name, also the places of
// what it stands for, which is where somebody would change it.
func (g *gathering) leaf(leaf cue.Value, depth int) {
	c := contribution(leaf)
	if g.blanks[c.Position] {
		c.Role = Refers
		g.add(c)
		return
	}
	target, ok := standsFor(leaf)
	if !ok || depth > maxFollowed {
		g.add(c)
		if op, args := trace.Expr(leaf); !g.used && c.Role == Sets && op != cue.NoOp {
			g.uses(computedFrom(args), depth)
		} else if !g.used && c.Role == Sets {
			g.uses(g.elements(leaf), depth)
		}
		return
	}
	if !lax.IsDir(path.Dir(c.Path)) {
		c.Role = Refers
		g.add(c)
	}
	for _, part := range trace.Leaves(target) {
		g.leaf(part, depth+1)
	}
}

// uses notes the places of what a value is computed from.
func (g *gathering) uses(values []cue.Value, depth int) {
	g.used = true
	for _, v := range values {
		for _, part := range trace.Leaves(v) {
			g.leaf(part, depth+1)
		}
	}
	g.used = false
}

// elements returns what the elements of a list refer to, and what comprehensions in it go through.
func (g *gathering) elements(leaf cue.Value) (out []cue.Value) {
	written := leaf.Source()
	if f, ok := written.(*ast.Field); ok {
		written = f.Value
	}
	list, ok := written.(*ast.ListLit)
	if !ok {
		return nil
	}
	it, err := leaf.List()
	for err == nil && it.Next() {
		if o, ok := trace.Referred(it.Value()); ok {
			out = append(out, o.Value)
		}
	}
	library := g.l.modulePath(path.Dir(contribution(leaf).Path))
	for _, names := range terms.References(list) {
		for n := len(g.at) - 1; n >= 0; n-- {
			if v := trace.Lookup(g.l.where.value(g.at[:n]), names, library); v.Exists() {
				out = append(out, v)
				break
			}
		}
	}
	return out
}

// passed notes the places that pass the value on with what holds it, as env: #params.env does with each variable.
func (g *gathering) passed() {
	for n := len(g.at) - 1; n > 2; n-- {
		for _, leaf := range trace.Leaves(g.l.where.value(g.at[:n])) {
			target, ok := standsFor(leaf)
			c := contribution(leaf)
			if !ok || lax.IsDir(path.Dir(c.Path)) || !trace.Lookup(target, g.at[n:], "").Exists() {
				continue
			}
			c.Role, c.Field = Refers, fieldPath(g.at[n:])
			g.add(c)
		}
	}
}

// declaredAt returns where the schema declares the field at a data path of an object, which may not be set; the zero
// Position if that is not known.
func declaredAt(l *loaded, at []string) schema.Position {
	for n := len(at) - 1; n >= 2; n-- {
		v := l.where.value(at[:n])
		if !v.Exists() {
			continue
		}
		for _, name := range at[n:] {
			next := v.LookupPath(cue.MakePath(cue.Str(name).Optional()))
			if !next.Exists() {
				return schema.Position{}
			}
			v = next
		}
		for _, leaf := range trace.Leaves(v) {
			if p := valueAt(leaf); lax.IsDir(path.Dir(p.Path)) {
				return p
			}
		}
		break
	}
	return schema.Position{}
}

// maxFollowed bounds how many names are followed, from one to the next.
const maxFollowed = 8

// standsFor returns what a value that is a name stands for, if that is elsewhere.
func standsFor(leaf cue.Value) (cue.Value, bool) {
	at := valueAt(leaf)
	if o, ok := trace.Referred(leaf); ok && valueAt(o.Value) != at {
		return o.Value, true
	}
	if target := cue.Dereference(leaf); target.Exists() && valueAt(target).Path != "" && valueAt(target) != at {
		return target, true
	}
	return cue.Value{}, false
}

// contribution says what one of the places of a value does.
func contribution(leaf cue.Value) Contribution {
	c := Contribution{Role: Limit, Position: valueAt(leaf)}
	var written ast.Expr
	switch src := leaf.Source().(type) {
	case *ast.Field:
		written = src.Value
	case ast.Expr:
		written = src
	}
	if written != nil {
		c.Text = terms.Clip(terms.Text(written))
	}
	if c.Text == "" {
		c.Text = terms.Clip(strings.Join(strings.Fields(fmt.Sprint(leaf)), " "))
	}
	switch d, isDefault := leaf.Default(); {
	case isDefault && d.IsConcrete() && strings.Contains(c.Text, "*"):
		c.Role = Defaults
	case isOpen(written):
	case leaf.IsConcrete() && !isDefault:
		c.Role = Sets
	}
	return c
}

// once returns mistakes with a field that no definition has reported once, at its label, where it is in
// several structs that are made from one.
func once(l *loaded, found []mistake) (out []mistake) {
	said := map[*ast.Field]bool{}
	slices.SortStableFunc(found, func(a, b mistake) int { return a.Compare(b.Diagnostic) })
	for _, d := range found {
		if d.Rule != schema.RuleUnknownField || d.Field == "" {
			out = append(out, d)
			continue
		}
		if f := l.where.holder(lastOf(d.Field), d.Position); f != nil {
			if said[f] {
				continue
			}
			said[f] = true
			d.Position = edge(f, true)
		}
		out = append(out, d)
	}
	return out
}

// A parameter that is not given shows in what is computed from it, for which CUE says that there is no
// value yet: of an element of a list, of a condition, of a name.

// refsOf returns the last names of what an expression refers to that has no value: the one at the places
// of an error, or else those that give the value at its path.
func refsOf(l *loaded, e errors.Error, at []string) (names []string) {
	if !l.built {
		return nil
	}
	for _, p := range errors.Positions(e) {
		if pos := position(p); pos.Path == "" || l.where.schema(pos.Path) {
			continue
		}
		file := l.where.fileAt(p)
		if ref := terms.RefAt(file, p); ref != nil {
			names = append(names, ref[len(ref)-1])
		}
		names = append(names, terms.LabelNames(file, p)...)
	}
	if len(names) > 0 || len(at) == 0 {
		return names
	}
	return valueRefs(l, at)
}

// valueRefs returns the last names of what the expressions refer to that give the value at a path.
func valueRefs(l *loaded, at []string) (names []string) {
	for len(at) > 1 && decimal.MatchString(at[len(at)-1]) {
		at = at[:len(at)-1]
	}
	for _, leaf := range trace.Leaves(l.where.value(unquoted(at))) {
		if f, ok := l.where.index()[valueAt(leaf)]; ok && !l.where.schema(position(f.Pos()).Path) {
			names = append(names, terms.RefNames(f.Value)...)
		}
	}
	return names
}

// lackingFor returns the parameters that a library declares and that are not given, for lack of which a
// mistake says that something has no value; none if it is not of that form. Of several of one name those
// of what the mistake is in come before others.
func lackingFor(l *loaded, d mistake) (out []mistake) {
	if !d.undecided && d.Rule != schema.RuleNotSet || d.form != plain || !l.built {
		return nil
	}
	if d.Rule == schema.RuleNotSet { // it shows in what is computed from the parameter
		d.refs = append(slices.Clip(d.refs), valueRefs(l, l.labels(d.Field))...)
	}
	best := 0
	for _, name := range d.refs {
		for _, o := range trace.Lacking(l.value, name, l.where.mine) {
			labels := labelsOf(o.Path)
			if !declaredOutside(l, o, name) || len(labels) < 2 {
				continue
			}
			near := nearness(l.labels(d.Field), labels)
			if near < best {
				continue
			}
			if near > best {
				best, out = near, nil
			}
			m := sayNotGiven(l, fieldPath(labels[:2]), o)
			m.form = absentField
			out = append(out, m)
		}
	}
	return out
}

// declaredOutside reports whether a library has the field of a name, which is not given.
func declaredOutside(l *loaded, o trace.Origin, name string) bool {
	return slices.ContainsFunc(trace.Leaves(o.Value), func(leaf cue.Value) bool {
		at := valueAt(leaf)
		f := l.where.index()[at]
		return f != nil && lax.Label(f) == name && terms.Limits(f.Value) && !l.where.mine(at.Path) && !l.where.schema(at.Path)
	})
}

// importable returns the import path, in quotes, of the one package of the repository that has a name, ""
// if there is none or there are several.
func importable(l *loaded, name string) (target string) {
	for file := range l.req.Files {
		dir := path.Dir(file)
		if path.Base(dir) != name || !strings.HasSuffix(file, ".cue") || ignored(file) || dir == l.dir {
			continue
		}
		next := strconv.Quote(l.modulePath(dir))
		if target != "" && next != target {
			return ""
		}
		target = next
	}
	return target
}

// isOperand reports whether what is at a position is compared or computed with: text without quotes is
// not meant there.
func isOperand(l *loaded, at schema.Position) (yes bool) {
	is := func(e ast.Expr) bool {
		_, ident := e.(*ast.Ident)
		return ident && position(e.Pos()) == at
	}
	ast.Walk(l.where.fileOf(at), func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			yes = yes || n.Op != token.AND && n.Op != token.OR && (is(n.X) || is(n.Y))
		case *ast.IfClause:
			yes = yes || is(n.Condition)
		case *ast.ForClause:
			yes = yes || is(n.Source)
		case *ast.SelectorExpr:
			yes = yes || is(n.X)
		}
		return !yes
	}, nil)
	return yes
}

func edge(f *ast.Field, key bool) schema.Position {
	if f.Value == nil || key && f.Label.Pos().IsValid() { // an element of a list has no label
		return position(f.Label.Pos())
	}
	return position(f.Value.Pos())
}

// ofTemplate reports whether an error is of a check within a definition: that a template
// is not yet as its checks want it is nothing before there is an object made from it. A name
// that does not exist is none of these: CUE gives up the whole package for it.
func ofTemplate(e errors.Error) bool {
	if unresolved.MatchString(errorText(e)) {
		return false
	}
	at := e.Path()
	return len(at) > 1 && strings.HasPrefix(at[0], "#") && slices.ContainsFunc(at[1:], func(s string) bool { return strings.HasPrefix(s, "_") })
}

// calls reports whether an error is of a call of error.
func calls(l *loaded, e errors.Error) bool {
	c, ok := terms.CheckAt(l.where.fileAt(e.Position()), e.Position())
	return ok && c.Call
}

// withoutTemplates leaves out the errors of templates. What whole objects are taken from, as of #apps.web.job, is no
// template: it is as it will be. Nor is what shows in an object, or in all of a kind, which CUE then does not have.
func withoutTemplates(l *loaded) {
	if !slices.ContainsFunc(l.errs, ofTemplate) {
		return
	}
	var kinds []string
	shown := map[string]bool{}
	note := func(v cue.Value) {
		for _, e := range errors.Errors(v.Err()) {
			shown[e.Error()] = true
		}
	}
	for _, k := range schema.Kinds() {
		v := l.value.LookupPath(cue.MakePath(cue.Str(string(k))))
		if !v.Exists() {
			continue
		}
		kinds = append(kinds, string(k))
		note(v)
		it, err := v.Fields()
		for err == nil && it.Next() {
			note(it.Value())
		}
	}
	taken := trace.TakenBy(l.value, kinds)
	var kept []errors.Error
	for _, e := range l.errs {
		path := unquoted(e.Path())
		switch {
		case !ofTemplate(e):
		case shown[e.Error()]:
			e = ofPackage(l, e, taken, kinds)
		case !slices.ContainsFunc(taken, func(at []string) bool {
			n := slices.IndexFunc(path, func(s string) bool { return strings.HasPrefix(s, "_") })
			return n <= len(at) && slices.Equal(at[:n], path[:n])
		}):
			continue
		}
		kept = append(kept, e)
	}
	l.errs = kept
}
