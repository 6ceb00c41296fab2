package compile

import (
	"encoding/json"
	"fmt"
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
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

// maxDepth is how deep an object's data may be nested; a valid job has 6 levels.
const maxDepth = 32

// exporter turns CUE values into plain data within a budget.
type exporter struct {
	left int  // bytes that may still be exported, roughly
	deep bool // a value was nested deeper than maxDepth
}

// spend takes n bytes from the budget and reports whether there is any left.
func (x *exporter) spend(n int) bool {
	x.left -= n
	return x.left >= 0
}

// plain returns v as decoded JSON. What is in error or not concrete becomes
// valid.Broken: CUE reports it.
func (x *exporter) plain(v cue.Value, depth int) any {
	if depth > maxDepth {
		x.deep = true
		return valid.Broken{}
	}
	if !x.spend(8) {
		return valid.Broken{}
	}
	v, _ = v.Default()
	switch v.Kind() {
	case cue.StructKind:
		return x.structure(v, depth)
	case cue.ListKind:
		return x.list(v, depth)
	case cue.StringKind:
		s, err := v.String()
		if err != nil || !x.spend(len(s)) {
			return valid.Broken{}
		}
		return s
	case cue.BoolKind:
		b, err := v.Bool()
		if err != nil {
			return valid.Broken{}
		}
		return b
	case cue.IntKind, cue.FloatKind, cue.NumberKind:
		b, err := v.MarshalJSON()
		if err != nil || !x.spend(len(b)) {
			return valid.Broken{}
		}
		return json.Number(b)
	case cue.NullKind:
		return nil
	case cue.BytesKind:
		return []byte{}
	}
	if b, ok := undecided(v); ok {
		return b
	}
	// Perhaps it is in error only because of a field within. An erroneous list
	// looks like a struct without fields.
	if m, ok := x.structure(v, depth).(map[string]any); ok && len(m) > 0 {
		return m
	}
	return valid.Broken{}
}

// undecided says why a value that has no data has none, if it is not in error.
func undecided(v cue.Value) (b valid.Broken, ok bool) {
	kind := v.IncompleteKind()
	if kind == cue.BottomKind || kind == cue.StructKind {
		return valid.Broken{}, false
	}
	op, conjuncts := trace.Expr(v)
	if op == cue.OrOp {
		return valid.Broken{Why: "has several possible values", Hint: "choose one, or mark one as the default with *: *A | B"}, true
	}
	if op == cue.AndOp {
		if a, b := twoDefaults(conjuncts); a != "" {
			return valid.Broken{
				Why:  fmt.Sprintf("has two defaults, which differ: %s and %s", a, b),
				Hint: "set the field, or remove the default at one of these places",
			}, true
		}
	}
	return valid.Broken{Why: fmt.Sprintf("is only constrained (%v), not set", kind), Constrained: true}, true
}

// twoDefaults returns two defaults that differ, and where each stands; "" if there
// are none.
func twoDefaults(conjuncts []cue.Value) (a, b string) {
	if first, other, ok := defaultsOf(conjuncts); ok {
		return placed(first), placed(other)
	}
	return "", ""
}

// defaultsOf returns the first two defaults that differ, false if there are none.
func defaultsOf(conjuncts []cue.Value) (first, other cue.Value, ok bool) {
	for _, c := range conjuncts {
		d, ok := c.Default()
		if !ok || !d.IsConcrete() || isOpenList(c) {
			continue
		}
		switch {
		case !first.Exists():
			first = d
		case !first.Equals(d):
			return first, d, true
		}
	}
	return first, other, false
}

// sayTwoDefaults says of a parameter at a path that it has two defaults, which differ: at the one that the package
// itself gives, or else at the first, since whoever sets neither has made no mistake. It reports whether it has.
func sayTwoDefaults(l *loaded, labels []string, conjuncts []cue.Value) (mistake, bool) {
	a, b, ok := defaultsOf(conjuncts)
	if !ok {
		return mistake{}, false
	}
	d := mistake{about: labels[len(labels)-1], Diagnostic: schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleNotSet, Field: fieldPath(labels), Position: valueAt(a),
		Message: fmt.Sprintf("has two defaults, which differ: %s and %s", placed(a), placed(b)),
		Hint:    "set the parameter, or remove the default at one of these places",
	}}
	if at := valueAt(b); l.where.mine(at.Path) {
		d.Position = at
	}
	if d.Path == "" {
		d.Position = l.where.enclosing(labels)
	}
	if !l.where.mine(d.Path) {
		d.form = ofLibrary
	}
	return d, true
}

// placed returns a value as it is written, and where.
func placed(v cue.Value) string {
	text := clip(fmt.Sprint(v))
	if pos := valueAt(v); pos.Path != "" {
		text += fmt.Sprintf(" (%s)", pos)
	}
	return text
}

// outline returns as much of the value of a top-level field as valid.Top asks
// for: of a kind the names of its objects, whose data is exported one by one.
func (x *exporter) outline(kind schema.Kind, v cue.Value) any {
	r := valid.Of(kind)
	objects, err := v.Fields()
	if r == nil || err != nil {
		return x.plain(v, 0)
	}
	m := map[string]any{}
	for objects.Next() {
		name, ok := label(objects)
		if !ok {
			continue
		}
		m[name] = map[string]any{}
		if r.Has(name) {
			m[name] = x.plain(objects.Value(), 0)
		}
	}
	return m
}

func (x *exporter) structure(v cue.Value, depth int) any {
	it, err := v.Fields()
	if err != nil {
		return valid.Broken{}
	}
	m := map[string]any{}
	for it.Next() {
		name, ok := label(it)
		if !ok {
			continue
		}
		if !x.spend(len(name)) {
			return valid.Broken{}
		}
		m[name] = x.plain(it.Value(), depth+1)
	}
	return m
}

// label returns the name of a regular field. A struct with errors lists hidden
// fields too.
func label(it *cue.Iterator) (string, bool) {
	sel := it.Selector()
	if sel.LabelType() != cue.StringLabel {
		return "", false
	}
	return sel.Unquoted(), true
}

func (x *exporter) list(v cue.Value, depth int) any {
	it, err := v.List()
	if err != nil {
		return valid.Broken{}
	}
	l := []any{}
	for it.Next() {
		if x.left < 0 {
			return valid.Broken{}
		}
		l = append(l, x.plain(it.Value(), depth+1))
	}
	return l
}

// trouble says why the export is not complete, "" if it is.
func (x *exporter) trouble(limit int) string {
	switch {
	case x.left < 0:
		return fmt.Sprintf("the package exports more than %d MiB", limit>>20)
	case x.deep:
		return fmt.Sprintf("the data is nested more than %d levels deep", maxDepth)
	}
	return ""
}

// sayExclusive says of two bounds that no value meets both of them: of a library that is a mistake of its own.
func sayExclusive(l *loaded, d *mistake, a, b string) {
	if strings.HasPrefix(a, "<") {
		a, b = b, a
	}
	d.Rule, d.Expected = schema.RuleConflict, ""
	d.Message, d.Hint = fmt.Sprintf("the bounds %s and %s exclude each other", a, b), "no value is within both: correct one of them"
	if !l.where.mine(d.Path) {
		d.form = ofLibrary
	}
}

// forGood is what CUE says of a definition that is wrong before a job gives it anything: not so of a list that is too short.
var forGood = lazyregexp.New(`^(?:conflicting values |incompatible [a-z ]*bounds |invalid value [^ ]+ \(out of bound [<>!])`)

// ofDefinition returns what is wrong with a definition of a library itself where a mistake shows, if that says the
// same before a job gives it anything: there it is to be corrected. It reports false if nothing is.
func ofDefinition(l *loaded, d mistake) (mistake, bool) {
	if d.form != plain || d.Rule == schema.RuleCheck || d.Rule == schema.RuleNotSet || !l.built {
		return mistake{}, false
	}
	if l.where.mine(d.Path) {
		return wrongAbove(l, d)
	}
	at := [3]string{d.Position.String(), d.Message, d.Expected} // what shows in a library says the same of all that it makes
	if l.libraries.blameless[at] {
		return mistake{}, false
	}
	found, ok := wrongAbove(l, d)
	if !ok {
		if l.libraries.blameless == nil {
			l.libraries.blameless = map[[3]string]bool{}
		}
		l.libraries.blameless[at] = true
	}
	return found, ok
}

// wrongAbove looks for what is wrong in the definitions that a mistake's value, or what it is in, is joined with.
func wrongAbove(l *loaded, d mistake) (mistake, bool) {
	labels := l.labels(d.Field)
	for n := 1; n < len(labels); n++ {
		for _, of := range l.libraries.joinedWith(l, labels[:n]) {
			found := l.libraries.wrongIn(l, of, labels[n:])
			if found == nil || found.form != ofLibrary && found.Message != d.Message {
				continue // the definition is wrong as its defaults are, and here other values are
			}
			m := *found
			m.form = ofLibrary
			return m, true
		}
	}
	return mistake{}, false
}

// libraries remembers what was found out of the definitions of libraries: many mistakes are of few.
type libraries struct {
	// joins are the definitions that the value at a data path is joined with.
	joins map[string][]definition
	// wrong is what is wrong with definitions themselves, nil of what is right.
	wrong map[definedPath]*mistake
	// blameless are mistakes that show in a library and are none of its own, by place, message and what is wanted.
	blameless map[[3]string]bool
	// allows is what definitions allow beside a field that they have not, by where that is written.
	allows map[schema.Position]trace.Allowed
	// adds are the objects to which a package only adds fields, or does not.
	adds map[string]bool
	// given are the labels of fields that stand under conditions on a field of a name.
	given map[string]map[string]bool
}

// allowed returns what the definitions allow where a field is not allowed, as far as that is known: the same for all
// objects that have the field from one place, as from a library.
func (b *libraries) allowed(l *loaded, d *mistake) trace.Allowed {
	sels := selectors(l, d.Field)
	if len(sels) < 2 || sels[len(sels)-1].LabelType() != cue.StringLabel {
		return trace.Allowed{}
	}
	found, known := b.allows[d.Position]
	if known {
		return found
	}
	last := len(sels) - 1
	name := sels[last].Unquoted()
	found = trace.Fields(l.value, sels[:last], name)
	if len(found.Branches) > 0 {
		in := l.value.LookupPath(cue.MakePath(sels[:last]...))
		for _, b := range found.Branches {
			other := slices.ContainsFunc(found.Branches, func(o terms.Branch) bool { return o.Name == name && strings.HasPrefix(b.If, o.If) })
			if !other && b.Name != name && trace.Has(in, b.Name) && !slices.Contains(found.Fields, b.Name) {
				found.Fields = append(found.Fields, b.Name)
			}
		}
	}
	if b.allows == nil {
		b.allows = map[schema.Position]trace.Allowed{}
	}
	b.allows[d.Position] = found
	return found
}

// definition is a definition of a library that a value is joined with.
type definition struct {
	name  string
	value cue.Value
}

// definedPath is a path below a definition.
type definedPath struct {
	at         schema.Position // of the definition
	name, path string
}

// joinedWith returns the definitions that the value at a path is joined with. To find out, CUE evaluates all that is joined
// there: at the top that can be most of a package.
func (b *libraries) joinedWith(l *loaded, path []string) []definition {
	key := strings.Join(path, "\x00")
	found, known := b.joins[key]
	if known {
		return found
	}
	for _, leaf := range trace.LeavesByPlace(l.where.value(path)) {
		_, to := leaf.ReferencePath()
		sels := to.Selectors()
		from, ok := standsFor(leaf)
		if ok && len(sels) > 0 && sels[len(sels)-1].IsDefinition() && !l.where.mine(valueAt(from).Path) {
			found = append(found, definition{to.String(), from})
		}
	}
	if b.joins == nil {
		b.joins = map[string][]definition{}
	}
	b.joins[key] = found
	return found
}

// wrongIn returns what is wrong with a definition of a library at a path below it, nil if nothing is.
func (b *libraries) wrongIn(l *loaded, of definition, labels []string) *mistake {
	key := definedPath{valueAt(of.value), of.name, strings.Join(labels, "\x00")}
	found, known := b.wrong[key]
	if !known {
		if b.wrong == nil {
			b.wrong = map[definedPath]*mistake{}
		}
		found = wrongBelow(l, of.value, labels)
		b.wrong[key] = found
	}
	return found
}

// wrongBelow finds out what wrongIn returns.
func wrongBelow(l *loaded, definition cue.Value, labels []string) *mistake {
	at := trace.Lookup(definition, labels, l.inst.ID())
	errs := slices.DeleteFunc(errors.Errors(at.Err()), func(e errors.Error) bool { return emptyDisjunction.MatchString(errorText(e)) })
	if len(errs) == 0 || slices.ContainsFunc(errs, func(e errors.Error) bool { return !forGood.MatchString(errorText(e)) }) {
		return nil
	}
	all := diagnose(l, errs)
	if len(all) > 0 && all[0].Path != "" && !l.where.mine(all[0].Path) && !l.where.schema(all[0].Path) {
		return &all[0]
	}
	return nil
}

// toGiven moves a mistake that shows in a library to where the package gives the value, unless the library makes
// what is wrong, whatever is given: the name of a field, or text, which no number is.
func toGiven(l *loaded, d *mistake, at schema.Position) {
	f, to := l.where.index()[d.Position], l.where.index()[at]
	if d.Rule == schema.RuleUnknownField && (to == nil || lax.Label(to) != lastOf(d.Field)) {
		return
	}
	if f != nil && d.Rule == schema.RuleWrongType {
		if _, text := f.Value.(*ast.Interpolation); text {
			d.Message, d.Hint = "is text, whatever it is made from", ""
			return
		}
	}
	if d.there != "" && l.writes(at, d.there) {
		d.Message = fmt.Sprintf("is %s here and %s at %s", d.there, d.here, d.Position)
	}
	d.Position = at
}

// toSet moves a mistake of a value that shows where a default for it is written to where the package itself sets the
// value.
func toSet(l *loaded, d *mistake, value string) {
	defer func() { _ = recover() }() // CUE knows no variables of comprehensions
	f, ok := l.where.index()[d.Position]
	if !ok || !l.built {
		return
	}
	if b, ok := f.Value.(*ast.BinaryExpr); !ok || b.Op != token.OR {
		return
	}
	for _, leaf := range trace.Leaves(l.where.value(l.labels(d.Field))) {
		at := valueAt(leaf)
		if op, _ := trace.Expr(leaf); at == d.Position || !l.where.mine(at.Path) || op == cue.OrOp || trace.Text(leaf) != value {
			continue
		}
		if f, ok := l.where.index()[at]; ok {
			at = edge(f, false)
		}
		d.Position = at
		return
	}
}

// toRow moves a mistake of a value that a field of the package takes from a row of a table, by the variable of a
// comprehension, to the row.
func toRow(l *loaded, d *mistake, sels []cue.Selector) {
	f, ok := l.where.index()[d.Position]
	if !ok || edge(f, false) != d.Position {
		return
	}
	if _, row := terms.OfVariable(f.Value); !row {
		return
	}
	if at, ok := l.where.given(l.value.LookupPath(cue.MakePath(sels...))); ok {
		d.Position = at
	}
}

// looking returns what is known of a check of the data at a path, which is in a file of from or of what that imports.
func looking(l, from *loaded, at []string, c terms.Check) trace.Looking {
	out := trace.Looking{Value: l.where.value, Context: l.context, At: at, Check: c}
	if in := instanceOf(from.inst, from.where.fileAt(c.At)); in != nil {
		out.Library, out.LibraryPath = l.context.BuildInstance(in), in.ID()
	}
	return out
}

// ofPackage gives an error of a template of a library the data path that it has in the package, since CUE says it of the
// library: in one of the structs that objects are selected from, or else in an object.
func ofPackage(l *loaded, e errors.Error, taken [][]string, kinds []string) errors.Error {
	path := unquoted(e.Path())
	if l.where.written(path[:1]) != nil {
		return e
	}
	for _, kind := range kinds {
		taken = append(taken, []string{kind})
	}
	same := func(o errors.Error) bool { return o.Error() == e.Error() }
	for _, at := range taken {
		for _, name := range trace.Names(l.where.value(at)) {
			here := append(slices.Clip(at), name)
			if l.where.written(here) != nil && slices.ContainsFunc(errors.Errors(l.where.value(here).Validate()), same) {
				return trace.At(append(here, path[1:]...), e)
			}
		}
	}
	return e
}

// sayRepeated says of a list that a check wants each thing in once which is there again, and places it there.
func sayRepeated(l *loaded, d *mistake, full []string, c terms.Check) {
	if !strings.HasPrefix(c.Holds, "list.UniqueItems(") {
		return
	}
	by := uniqueBy.FindStringSubmatch(c.Holds)
	if by == nil {
		return
	}
	list, err := l.where.value(full).List()
	first := map[string]int{}
	for i := 0; err == nil && list.Next(); i++ {
		text := trace.Text(list.Value().LookupPath(cue.ParsePath(by[1])))
		n, again := first[text]
		if text == "" || !again {
			first[text] = i
			continue
		}
		at := func(i int) []string { return slices.Concat(full, []string{strconv.Itoa(i), by[1]}) }
		d.Field, d.Position, d.repeated = fieldPath(at(i)), l.where.of(at(i), false), strings.Trim(text, `"`)
		d.Message = fmt.Sprintf("%s is there again: it is at %s, too", terms.Clip(text), l.where.of(at(n), false))
		return
	}
}

// uniqueBy is the condition that no two elements of a list have one value of a field.
var uniqueBy = lazyregexp.New(`^list\.UniqueItems\(\[for (?:[^ ]+, )?[^ ]+ in [^ ]+ \{[^ .]+\.([^ .{}()]+)\}\]\)$`)

// sayListed says of a text that is none of several words, where CUE does not say of which, what they are: those that a
// library lists together with the one that CUE compares the text with, if that is in one list.
func sayListed(l *loaded, d *mistake, text, other string) {
	d.Hint = "a field has one value: keep one of them"
	var found terms.Alternatives
	var at schema.Position
	for _, f := range allFiles(l.inst) {
		if name := position(f.Pos()).Path; l.where.schema(name) {
			continue
		}
		for _, u := range terms.Unions(f) {
			a, ok := terms.Of(l.known(u, 0))
			if !ok || !slices.Contains(a.Words, strings.Trim(other, `"`)) || slices.Contains(a.Words, strings.Trim(text, `"`)) {
				continue
			}
			if at.Path != "" && a.Want != found.Want {
				return
			}
			found, at = a, position(u.Pos())
		}
	}
	if at.Path == "" {
		return
	}
	d.Rule, d.Message, d.Expected = schema.RuleInvalidValue, "is "+terms.Clip(text), found.Want
	d.Hint = fmt.Sprintf("the values are listed at %s", at)
	if near := valid.Nearest(strings.Trim(text, `"`), found.Words); len(near) > 1 {
		d.is, d.meant = strings.Trim(text, `"`), meant(strings.Trim(text, `"`), found.Words)
		d.Hint = fmt.Sprintf("did you mean %q? The values are listed at %s", near, at)
	}
}

// wantOf says which structs a union takes.
func wantOf(u trace.Union) string {
	tag, ok := u.Tag()
	if !ok {
		return "a struct"
	}
	return fmt.Sprintf("a struct whose %s is %s", tag.Name, terms.Say(strings.Join(tag.Values, " | ")))
}

// rowWithout moves a mistake of a column that a comprehension of the package looks up to the one row that has not the
// column, or has it under another name.
func rowWithout(l *loaded, d *mistake, name string) {
	var source []string
	ast.Walk(l.where.fileOf(d.Position), func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && position(s.Sel.Pos()) == d.Position {
			source, _ = terms.OfVariable(s)
		}
		return source == nil
	}, nil)
	if source == nil {
		return
	}
	var without, all []string
	for _, row := range trace.Members(l.where.value(source)) {
		if all = append(all, row); !l.where.value(append(slices.Clip(source), row, name)).Exists() {
			without = append(without, row)
		}
	}
	if len(without) != 1 || len(all) < 2 {
		return
	}
	row, looked := append(slices.Clip(source), without[0]), d.Position
	d.Message, d.Hint, d.lacks = fmt.Sprintf("there is no %s in it", name), fmt.Sprintf("it is looked up at %s", d.Position), ""
	d.Field, d.Position = fieldPath(row), l.where.of(row, true)
	for _, label := range trace.Names(l.where.value(row)) {
		if valid.Nearest(label, []string{name}) != "" {
			d.Hint, d.Position = fmt.Sprintf("did you mean %s? It is looked up at %s", name, looked), l.where.of(append(row, label), true)
			d.Field = fieldPath(append(row, label))
		}
	}
}
