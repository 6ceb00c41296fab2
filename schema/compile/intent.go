package compile

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/compile/walk"
	"github.com/musterhq/muster/schema/valid"
)

// What is valid CUE and yet cannot be meant: data with the marks of a
// definition, which CUE takes for a constraint and drops; the definition of
// another kind; fields nested by indentation alone.

// intent returns these mistakes in the package's own files.
func intent(l *loaded) []mistake {
	w := &intents{from: l}
	for _, f := range l.where.files {
		if !l.where.mine(strings.TrimPrefix(f.Filename, "/")) {
			continue
		}
		w.nesting(f.Decls, 0)
		for _, d := range f.Decls {
			if field, ok := d.(*ast.Field); ok && valid.Of(schema.Kind(lax.Label(field))) != nil && !hidden(field) {
				w.field(field, []string{lax.Label(field)})
			}
		}
	}
	return w.diags
}

// undefinedNames returns the names of imported packages of the repository that these do
// not have, in a package that is right otherwise: CUE says nothing of them before a
// definition is used.
func undefinedNames(l *loaded) (out []mistake) {
	byPath := map[string]*build.Instance{}
	for _, in := range l.inst.Imports {
		byPath[in.ImportPath] = in
	}
	for _, f := range l.where.files {
		if !l.where.mine(strings.TrimPrefix(f.Filename, "/")) {
			continue
		}
		ast.Walk(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || len(out) >= maxDiagnostics {
				return true
			}
			name, _, err := ast.LabelName(s.Sel)
			in := importOf(s.X, byPath)
			if in == nil || err != nil || hasTop(in, name) {
				return true
			}
			m := mistake{Diagnostic: schema.Diagnostic{Severity: schema.Error, Rule: schema.RuleUndefined, Position: position(s.Sel.Pos())}}
			sayUndefined(l, &m, []string{"", name}, nil)
			out = append(out, m)
			return true
		}, nil)
	}
	return out
}

// intents gathers mistakes.
type intents struct {
	from  *loaded
	diags []mistake
}

// add completes what is said of the field at a data path.
func (w *intents) add(pos token.Pos, at []string, m mistake) {
	again := len(at) == 1 && slices.ContainsFunc(w.diags, func(o mistake) bool { return o.Field == at[0] && o.Message == m.Message }) // of a kind in each of its fields
	if len(w.diags) < maxDiagnostics && !again {
		m.Severity, m.Position, m.Field = schema.Error, position(pos), fieldPath(at)
		w.diags = append(w.diags, m)
	}
}

// said is a mistake of which nothing but its words is known.
func said(rule schema.Rule, message, hint string) mistake {
	return mistake{Diagnostic: schema.Diagnostic{Rule: rule, Message: message, Hint: hint}}
}

// field looks at a field of an object, or at a kind, at a data path.
func (w *intents) field(f *ast.Field, at []string) {
	if f.Constraint != token.ILLEGAL && (isData(f.Value) || len(at) < 3) {
		mark, means := "?", "makes the field optional, and does not set it"
		if f.Constraint == token.NOT {
			mark, means = "!", "requires the field, and does not set it"
		}
		w.add(f.Label.Pos(), at, said(schema.RuleNotSet, fmt.Sprintf("the %s after %s %s", mark, at[len(at)-1], means), fmt.Sprintf("remove the %s: %s: …", mark, at[len(at)-1])))
		return
	}
	w.value(f.Value, at)
}

func (w *intents) value(e ast.Expr, at []string) {
	switch e := e.(type) {
	case *ast.StructLit:
		w.decls(e.Elts, at)
	case *ast.ParenExpr:
		w.value(e.X, at)
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			w.value(e.X, at)
			w.value(e.Y, at)
		}
	case *ast.SelectorExpr:
		w.definition(e, at)
	}
}

func (w *intents) decls(decls []ast.Decl, at []string) {
	if len(at) > maxDepth {
		return
	}
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			if name := lax.Label(d); name != "" && !hidden(d) {
				w.field(d, append(slices.Clip(at), name))
			}
		case *ast.EmbedDecl:
			w.value(d.Expr, at)
		}
	}
}

// definition reports an object that is joined with the definition of something
// else.
func (w *intents) definition(e *ast.SelectorExpr, at []string) {
	x, isIdent := e.X.(*ast.Ident)
	if !isIdent || x.Name != SchemaDir || len(at) > 2 {
		return
	}
	sel, _, err := ast.LabelName(e.Sel)
	if _, ours := lax.Definitions()[sel]; err != nil || !ours {
		return
	}
	if want := schema.Kind(at[0]).Definition(); sel != want {
		m := said(schema.RuleWrongType, fmt.Sprintf("a %s is not a %s.%s", at[0], SchemaDir, sel), fmt.Sprintf("did you mean %s.%s?", SchemaDir, want))
		m.form = wrongDefinition
		w.add(e.Sel.Pos(), at, m)
	}
}

// nesting reports fields that are nested by indentation, as in YAML: a label
// whose value is on a later line, with more fields in the same column below.
// All but the first of them would belong to what is outside.
func (w *intents) nesting(decls []ast.Decl, depth int) {
	for i, d := range decls {
		f, ok := d.(*ast.Field)
		if !ok || depth > maxDepth {
			continue
		}
		inner := chained(f)
		switch {
		case inner == nil:
		case column(inner) == column(f):
			w.add(f.Label.Pos(), nil, said(schema.RuleSyntax, fmt.Sprintf("%s has no value: CUE takes the field on the next line as its value", lax.Label(f)), "write the value after the colon"))
			return
		case i+1 < len(decls) && column(decls[i+1]) == column(last(f)):
			w.add(f.Label.Pos(), nil, said(schema.RuleSyntax, "indentation does not nest fields", fmt.Sprintf("write braces: %s: {…}", lax.Label(f))))
			return
		}
		value := f.Value
		if b, ok := value.(*ast.BinaryExpr); ok {
			value = b.Y
		}
		if s, ok := value.(*ast.StructLit); ok {
			w.nesting(s.Elts, depth+1)
		}
	}
}

func column(n ast.Node) int { return n.Pos().Column() }

// covered reports whether a mistake of nesting explains what else was found at
// a place: all in its file from its line on, and what is missing.
func covered(intents []mistake, d mistake) bool {
	return slices.ContainsFunc(intents, func(n mistake) bool {
		switch {
		case n.Path != d.Path:
			return false
		case n.Field == "":
			return d.Line >= n.Line-1 && d.Line <= n.Line+20 || d.form == missingField
		}
		if n.Position == d.Position && d.form == missingField {
			return true
		}
		other := n.form == wrongDefinition
		return d.Field == n.Field && d.Position != n.Position && !other || other && within(d.Field, n.Field) && d.form == closedField
	})
}

// Two objects with one name are one object to CUE, which says of each field that it has two values.

// twice returns mistakes with all conflicts of an object that is made twice as one: they are of two
// objects that have one name. What makes several objects, as a quota beside a job, has one mistake, too.
func twice(l *loaded, found []mistake) (out []mistake) {
	said := map[string]bool{}
	object := func(sels []cue.Selector) (n int, at []string) { // in a hidden field, too, in which a library makes objects
		last := min(len(sels), 1)
		if last > 0 && sels[0].LabelType() == cue.HiddenLabel {
			last = len(sels)
		}
		n = slices.IndexFunc(sels[:last], func(s cue.Selector) bool { return valid.Of(schema.Kind(s.String())) != nil })
		if n < 0 || n+2 >= len(sels) {
			return -1, nil
		}
		return n, labelsOf(cue.MakePath(sels[:n+2]...))
	}
	for _, d := range found {
		sels := selectors(l, d.Field)
		n, at := object(sels)
		if n < 0 {
			out = append(out, d)
			continue
		}
		var places []schema.Position
		if d.Rule == schema.RuleConflict && n == 0 {
			places = l.where.made(at)
		}
		if len(places) < 2 {
			places = twins(l, d, sels)
		}
		if len(places) < 2 {
			out = append(out, d)
			continue
		}
		both := fmt.Sprint(places)
		known := said[fieldPath(at)] || said[both]
		said[fieldPath(at)], said[both] = true, true
		if known {
			continue
		}
		for i := range places {
			places[i].Path = l.where.data.whole(places[i].Path)
		}
		out = append(out, mistake{Diagnostic: schema.Diagnostic{
			Severity: schema.Error, Rule: schema.RuleConflict, Position: places[1], Field: fieldPath(at),
			Message: fmt.Sprintf("the %s %s is made twice, first at %s, and the two are not the same", at[n], at[n+1], places[0]),
			Hint:    "remove one, or give it another name",
		}})
	}
	return slices.DeleteFunc(out, func(d mistake) bool {
		if len(said) == 0 || d.Rule != schema.RuleConflict {
			return false
		}
		n, at := object(selectors(l, d.Field))
		return n >= 0 && said[fieldPath(at)]
	})
}

// adds reports whether a package only adds fields to the object that a mistake is in, and gives it none of those without
// which there is no such object.
func adds(l *loaded, m mistake) bool {
	object := objectOf(m.Field)
	if yes, known := l.libraries.adds[object]; known || len(l.libraries.adds) >= mostStrangers {
		return yes
	}
	at := l.labels(object)
	rule := valid.Of(schema.Kind(at[0]))
	if len(at) < 2 || m.form != missingField || rule == nil {
		return false
	}
	bodies := bodiesOf(l, at)
	yes := len(bodies) > 0 && !slices.ContainsFunc(bodies, func(e ast.Expr) bool {
		s, ok := e.(*ast.StructLit)
		return !ok || slices.ContainsFunc(s.Elts, func(d ast.Decl) bool { _, embeds := d.(*ast.EmbedDecl); return embeds }) || givesRequired(s, rule, maxDepth)
	})
	if l.libraries.adds == nil {
		l.libraries.adds = map[string]bool{}
	}
	l.libraries.adds[object] = yes
	return yes
}

// mostStrangers bounds of how many objects of a package it is found out whether they only add to others: few names are
// misspelled.
const mostStrangers = 20

// bodiesOf returns what a package writes of an object: under its name, or else under one that is computed, where nothing
// else is joined with it but what is said of all of its kind.
func bodiesOf(l *loaded, at []string) (bodies []ast.Expr) {
	for _, f := range l.where.files {
		for _, field := range walk.Find(f.Decls, at) {
			bodies = append(bodies, field.Value)
		}
	}
	if len(bodies) > 0 {
		return bodies
	}
	for _, leaf := range trace.Leaves(l.where.value(at)) {
		f, ok := l.where.index()[valueAt(leaf)]
		if !ok || !l.where.mine(valueAt(leaf).Path) {
			return nil
		}
		if _, pattern := f.Label.(*ast.ListLit); !pattern {
			bodies = append(bodies, f.Value)
		}
	}
	return bodies
}

// strangers returns what is missing, with all that an object lacks as one mistake where the package only adds fields to it
// and its name is probably a misspelling of that of another one.
func strangers(l *loaded, missing []mistake) (out []mistake) {
	lack := map[string][]string{}
	for _, m := range missing {
		object := objectOf(m.Field)
		lack[object] = append(lack[object], strings.TrimPrefix(strings.TrimPrefix(m.Field, object), "."))
	}
	said := map[string]bool{}
	for _, m := range missing {
		object := objectOf(m.Field)
		if said[object] {
			continue
		}
		if !adds(l, m) {
			out = append(out, m)
			continue
		}
		at := l.labels(m.Field)
		others := slices.DeleteFunc(trace.Names(l.where.value(at[:1])), func(name string) bool { return lack[fieldPath([]string{at[0], name})] != nil })
		near := valid.Nearest(at[1], others)
		if near == "" || len(at[1]) < 3 {
			out = append(out, m)
			continue
		}
		said[object] = true
		m.Field, m.Position, m.Expected = object, l.where.of(at[:2], true), ""
		m.Message = fmt.Sprintf("the %s %s lacks %s", at[0], at[1], strings.Join(lack[object], ", "))
		m.Hint = fmt.Sprintf("did you mean %s? Fields that are written under one name are of one %s", near, at[0])
		out = append(out, m)
	}
	return out
}

// twins returns where two things stand that an expression makes one and the same object of, as of two
// rows of a table with one name, if the values of a mistake in it are one of each; nil if they are not.
func twins(l *loaded, d mistake, sels []cue.Selector) []schema.Position {
	switch d.Rule {
	case schema.RuleConflict, schema.RuleInvalidValue, schema.RuleWrongType, schema.RuleOutOfRange:
	default:
		return nil
	}
	for n := len(sels); n > 2; n-- {
		a, b := sameSource(l, sels[:n])
		if !a.Exists() {
			continue
		}
		for _, one := range trace.Origins(a) {
			for _, other := range trace.Origins(b) {
				places := partedAt(l, one.Path, other.Path)
				if places == nil { // the file that is embedded has no path in the package
					places = l.where.parted(valueAt(one.Value), valueAt(other.Value), labelsOf(cue.MakePath(sels...)))
				}
				if places != nil {
					return places
				}
			}
		}
	}
	return nil
}

// mostTwins bounds how many parts of a value are compared.
const mostTwins = 64

// sameSource returns two of what the value at a path is joined from that are written at one place, and
// so come from two runs of a comprehension, or two uses of a definition; values that do not exist if
// there are none.
func sameSource(l *loaded, at []cue.Selector) (a, b cue.Value) {
	seen := map[schema.Position]cue.Value{}
	all := trace.Leaves(l.value.LookupPath(cue.MakePath(at...)))
	for _, leaf := range all[:min(len(all), mostTwins)] {
		pos := position(leaf.Pos())
		if pos.Path == "" || l.where.schema(pos.Path) {
			continue
		}
		if first, ok := seen[pos]; ok {
			return first, leaf
		}
		seen[pos] = leaf
	}
	return cue.Value{}, cue.Value{}
}

// partedAt returns where two data paths part that are alike but for one label or index, sorted; nil if they
// are not, or the package does not have these.
func partedAt(l *loaded, one, other cue.Path) []schema.Position {
	a, b := labelsOf(one), labelsOf(other)
	if len(a) != len(b) {
		return nil
	}
	n := -1
	for i := range a {
		if a[i] == b[i] {
			continue
		}
		if n >= 0 {
			return nil
		}
		n = i
	}
	if n < 1 {
		return nil
	}
	places := []schema.Position{l.where.of(a[:n+1], true), l.where.of(b[:n+1], true)}
	if places[0] == places[1] || !l.where.mine(places[0].Path) || !l.where.mine(places[1].Path) {
		return nil
	}
	slices.SortFunc(places, schema.Position.Compare)
	return places
}

// parted returns where two things of the package begin that hold two values, each at the same place below
// its own, as two rows of a table do, sorted; nil if the values are written in another way. Where one of them has one of
// some names as a value, it is there.
func (p *positions) parted(one, other schema.Position, names []string) []schema.Position {
	for _, f := range p.own() {
		a, b := walk.To(f, beside(one)), walk.To(f, beside(other))
		if len(a) != len(b) {
			continue
		}
		n := 0
		for n < len(a) && a[n].Node == b[n].Node {
			n++
		}
		below := func(s, o walk.Step) bool { return s.Label == o.Label }
		if n == len(a) || !slices.EqualFunc(a[n+1:], b[n+1:], below) {
			continue
		}
		places := []schema.Position{namedIn(a[n].Node, names), namedIn(b[n].Node, names)}
		slices.SortFunc(places, schema.Position.Compare)
		return places
	}
	return nil
}

// beside returns how positions compare with one.
func beside(pos schema.Position) func(token.Pos) int {
	return func(p token.Pos) int { return position(p).Compare(pos) }
}

// branching reports whether a field stands under conditions on what a mistake is of: it is there, or is not, since
// no condition holds that was meant to.
func branching(l *loaded, m mistake, field string) bool {
	name := m.chooses()
	if name == "" {
		return false
	}
	given, known := l.libraries.given[name]
	if !known {
		files := slices.DeleteFunc(allFiles(l.inst), func(f *ast.File) bool { return l.where.schema(strings.TrimPrefix(f.Filename, "/")) })
		given = terms.GivenIf(files, name)
		if l.libraries.given == nil {
			l.libraries.given = map[string]map[string]bool{}
		}
		l.libraries.given[name] = given
	}
	return given[lastOf(field)]
}

// withoutBranches returns mistakes without what another one says, and without fields that are not allowed, or missing, only
// since what they depend on is set to none of the values that it may have, or is one of some parameters that are misspelled.
func withoutBranches(l *loaded, found, parameters []mistake) []mistake {
	chosen := slices.DeleteFunc(slices.Clone(found), func(m mistake) bool { return m.chooses() == "" })
	return slices.DeleteFunc(slices.Clone(found), func(d mistake) bool {
		depends := func(m mistake) bool {
			return m.Field != d.Field && branching(l, m, d.Field) &&
				(d.form == missingField && (m.beside() || objectOf(m.Field) == objectOf(d.Field)) || d.form == closedField && parent(m.Field) == parent(d.Field))
		}
		name := ""
		if f, ok := l.where.index()[d.Position]; ok {
			if id, ok := f.Value.(*ast.Ident); ok {
				name = id.Name
			}
		}
		return name != "" && slices.ContainsFunc(found, func(m mistake) bool { return refers(d, m, name) }) ||
			(d.form == missingField || d.form == closedField) && slices.ContainsFunc(parameters, depends) ||
			d.form == closedField && slices.ContainsFunc(chosen, depends)
	})
}

// madeFromUndefined reports whether what is not given is set to what is made from a name that is not defined.
func madeFromUndefined(l *loaded, m mistake, found []mistake) bool {
	return slices.ContainsFunc(found, func(u mistake) bool {
		return u.form == undefinedName && l.where.holder(lastOf(m.Field), u.Position) != nil
	})
}

// toLacking moves a mistake of what is looked up and is not there, in the data at a path, to where the package, or a file
// that it embeds, writes the struct that lacks it.
func toLacking(l *loaded, d *mistake, at []string) {
	name := d.lacks
	if d.form == absentField {
		name = d.about
	}
	if name == "" || d.form == closedField || d.form == absentDefinition || !l.built {
		return
	}
	from, indexed := trace.SelectedFrom(trace.Lookup(l.value, at, l.inst.ID()), name)
	s, ok := writtenStruct(l, from, name)
	if !ok || d.form != absentField && !s.others && (!indexed || l.where.mine(d.Path) || d.Rule != schema.RuleUndefined) {
		return
	}
	if d.form != absentField {
		d.Message, d.Hint, d.Expected = fmt.Sprintf("there is no %s in it", name), fmt.Sprintf("it is looked up at %s", d.Position), ""
	}
	d.about, d.Position = name, s.label
	if s.at != nil {
		d.Field = fieldPath(s.at)
	}
	if s.near != "" {
		d.is, d.meant = s.near, name
		d.Hint = fmt.Sprintf("did you mean %s? %s", name, strings.Replace(d.Hint, "it is", "It is", 1))
	}
}

// lackingStruct is what a package writes of a struct that lacks a field.
type lackingStruct struct {
	label schema.Position
	at    []string // its data path, nil if it is in what has none
	near  string   // the label that the field probably has; label is where that stands
	// others is set if what is beside the struct has the field.
	others bool
}

// writtenStruct returns what the package, or a file that it embeds, writes of a struct that lacks a field of a name, or what
// others write of it if that has the field under a similar name. It reports false if there is nothing of the kind.
func writtenStruct(l *loaded, v cue.Value, name string) (found lackingStruct, ok bool) {
	for _, part := range trace.Parts(v) {
		s := lackingStruct{at: labelsOf(part.Path())}
		switch n := part.Source().(type) {
		case *ast.Field:
			s.label = position(n.Label.Pos())
		case *ast.StructLit: // an element of a list
			s.label = beginning(part)
		}
		if s.label.Path == "" {
			continue
		}
		if len(s.at) == 0 || slices.Contains(s.at, "") || decimal.MatchString(s.at[0]) {
			s.at = nil
		}
		s.others = besideHas(l, part, name)
		if near := valid.Nearest(name, trace.Names(part)); near != "" && !besideHas(l, part, near) { // which is a field like others
			s.near = near
			if inner, is := part.LookupPath(cue.MakePath(cue.Str(s.near))).Source().(*ast.Field); is && inner.Label.Pos().IsValid() {
				s.label = position(inner.Label.Pos())
			}
			if s.at != nil {
				s.at = append(s.at, s.near)
			}
		}
		mine := l.where.mine(s.label.Path)
		if mine || s.near != "" && !ok && !l.where.schema(s.label.Path) {
			found, ok = s, true
		}
		if mine {
			return found, true
		}
	}
	return found, ok
}

// besideHas reports whether one of the structs beside another one has a field of a name.
func besideHas(l *loaded, v cue.Value, name string) bool {
	at := v.Path().Selectors()
	in := instanceOf(l.inst, l.where.fileAt(v.Pos()))
	root := l.value
	switch {
	case in != nil && in != l.inst:
		root = l.context.BuildInstance(in)
	case len(at) < 2:
		return false
	}
	has := func(of cue.Value) bool { // without the struct itself
		return slices.ContainsFunc(trace.Members(of), func(label string) bool {
			x := of.LookupPath(cue.MakePath(cue.Str(label)))
			return x.Path().String() != v.Path().String() && x.LookupPath(cue.MakePath(cue.Str(name))).Exists()
		})
	}
	table := root.LookupPath(cue.MakePath(at[:max(len(at)-2, 0)]...)) // perhaps of tables
	return has(root.LookupPath(cue.MakePath(at[:len(at)-1]...))) || len(at) > 2 && slices.ContainsFunc(trace.Members(table), func(label string) bool {
		return has(table.LookupPath(cue.MakePath(cue.Str(label))))
	})
}
