package compile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

// What a library says of its values, in words.

// scope is a package in which expressions of its own are evaluated.
type scope struct {
	context *cue.Context
	value   cue.Value
}

// sayAlternatives says of a value that is none of those that a library takes which
// these are, and reports whether one of the other places lists them.
func (l *loaded) sayAlternatives(d *mistake, m []string, others []schema.Position) bool {
	at := d.Position
	if f, ok := l.where.index()[at]; ok {
		at = position(f.Value.Pos())
	}
	for _, o := range others {
		f := declaring(l.where, lastOf(d.Field), o)
		if f == nil || position(f.Value.Pos()) == at {
			continue
		}
		if low, high, ok := terms.Exclusive(f.Value); ok {
			d.Position = position(low.Pos())
			sayExclusive(l, d, terms.Text(low), terms.Text(high))
			return true
		}
		known := l.known(f.Value, 0)
		a, ok := terms.Of(known)
		if !ok {
			continue
		}
		got := l.textAt(d.Position)
		for _, text := range m[1:3] {
			if got == "" && !strings.Contains(unspaced(terms.Text(known)), unspaced(text)) {
				got = text
			}
		}
		if got == "" {
			continue
		}
		d.Rule, d.Message, d.Expected, d.takes = schema.RuleInvalidValue, "is "+terms.Clip(got), a.Want, terms.Text(known)
		if len(a.Words) == 0 {
			d.Message = "is " + literally(terms.Clip(got), kindOf(got))
		}
		place := position(f.Value.Pos()).String()
		d.Hint = "it is declared at " + place
		word := strings.Trim(got, `"`)
		if near := nearest(f, word, a.Words); near != "" {
			d.is, d.meant = word, meant(word, a.Words)
			d.Hint = fmt.Sprintf("did you mean %q? The values are listed at %s", near, place)
		} else if len(a.Words) > 1 {
			d.Hint = "the values are listed at " + place
		}
		return true
	}
	return false
}

// unspaced returns a text without spaces, which CUE writes otherwise than users do.
func unspaced(s string) string { return strings.ReplaceAll(s, " ", "") }

// sayAmong says of a value that is none of several that are computed which these are, and reports
// whether there are such.
func (l *loaded) sayAmong(d *mistake) bool {
	v := l.value.LookupPath(cue.MakePath(selectors(l, d.Field)...))
	op, parts := trace.Expr(v)
	if op != cue.AndOp {
		return false
	}
	var given []cue.Value
	var among ast.Expr
	var at schema.Position
	for _, part := range parts {
		if u, ok := trace.UnionOf(part); ok {
			among, at = anyOf(u), position(u.At)
		} else if e, ok := part.Syntax(cue.Raw()).(*ast.BinaryExpr); ok && e.Op == token.OR { // of close({…})
			among, at = e, valueAt(part)
		} else {
			given = append(given, part)
		}
		if len(given) > 1 { // which of thousands of rows of a table may all be
			return false
		}
	}
	if len(given) != 1 || among == nil || !terms.AreLiterals(among) {
		return false
	}
	a, _ := terms.Of(among)
	text, kind := trace.Text(given[0]), given[0].Kind()
	if text == "" {
		return false // it is wrong itself
	}
	d.Rule, d.Message, d.Expected, d.takes = schema.RuleInvalidValue, "is "+terms.Clip(text), a.Want, terms.Text(among)
	if kind != cue.StringKind || len(a.Words) == 0 {
		d.Message = "is " + literally(terms.Clip(text), kind.String())
	}
	if f, ok := l.where.index()[at]; ok {
		at = edge(f, false)
	}
	d.Hint = fmt.Sprintf("the values are listed at %s", at)
	if near := valid.Nearest(strings.Trim(text, `"`), a.Words); near != "" && kind == cue.StringKind && len(near) > 1 {
		d.is, d.meant = strings.Trim(text, `"`), meant(strings.Trim(text, `"`), a.Words)
		d.Hint = fmt.Sprintf("did you mean %q? The values are listed at %s", near, at)
	}
	return true
}

// anyOf returns the alternatives of a union as an expression, nil if one is not known.
func anyOf(u trace.Union) (e ast.Expr) {
	for _, a := range u.Alternatives {
		if !a.IsConcrete() {
			return nil
		}
		x, ok := a.Syntax(cue.Final()).(ast.Expr)
		switch {
		case !ok:
			return nil
		case e == nil:
			e = x
		default:
			e = &ast.BinaryExpr{X: e, Op: token.OR, Y: x}
		}
	}
	return e
}

// sayRequired says that a required field of the repository's own CUE is missing.
func (l *loaded) sayRequired(d *mistake, at []string, e errors.Error) {
	name := strings.Trim(at[len(at)-1], `"`)
	d.form, d.Rule, d.Message = missingField, schema.RuleMissingField, fmt.Sprintf("required field %q is missing", name)
	if home := l.where.required(e); home.Path != "" {
		d.Hint = "it is required at " + home.String()
		if f, ok := l.where.index()[home]; ok {
			d.Expected = terms.SayExpr(l.known(f.Value, 0))
		}
	}
	if d.Position = l.where.enclosing(at); !l.where.mine(d.Path) {
		d.Position = l.where.of(at[:min(len(at), 2)], true)
	}
}

// ofParameter returns what is wrong with a parameter, where package trace has found that out.
func (l *loaded) ofParameter(e errors.Error) (d mistake, ok bool) {
	switch e := e.(type) {
	case *trace.NoAlternative:
		return l.noAlternative(e), true
	case *trace.Absent:
		d = sayNotGiven(l, cue.MakePath(e.Origin.Path.Selectors()[:min(2, len(e.Path()))]...).String(), e.Origin)
		d.form = absentField
		return d, true
	}
	return d, false
}

// noAlternative says of a value that is none of several alternatives, or of the field of it that
// separates these, what it may be.
func (l *loaded) noAlternative(e *trace.NoAlternative) mistake {
	at := e.Path()
	d := mistake{Diagnostic: schema.Diagnostic{Severity: schema.Error, Rule: schema.RuleInvalidValue, Field: fieldPath(at)}}
	if d.Position, _ = l.where.ofError(e, at); d.Path == "" || !l.where.mine(d.Path) {
		d.Position = l.where.of(unquoted(at), false)
	}
	values := terms.Say(strings.Join(e.Tag.Values, " | "))
	listed := position(e.Union.At)
	d.Hint = "the alternatives are listed at " + listed.String()
	if e.Given.Exists() {
		d.Rule, d.Expected = schema.RuleWrongType, wantOf(e.Union)
		d.Message = "is " + literally(terms.Clip(trace.Text(e.Given)), e.Given.IncompleteKind().String())
		return d
	}
	d.Message, d.Expected = "is "+terms.Clip(e.Tag.Given), values
	var names []string
	for _, v := range e.Tag.Values {
		if s, err := strconv.Unquote(v); err == nil {
			names = append(names, s)
		}
	}
	if near := valid.Nearest(strings.Trim(e.Tag.Given, `"`), names); near != "" {
		d.is, d.meant = strings.Trim(e.Tag.Given, `"`), meant(strings.Trim(e.Tag.Given, `"`), names)
		d.Hint = fmt.Sprintf("did you mean %q? The alternatives are listed at %s", near, listed)
	}
	return d
}

// sayAbsent says of what refers to a required field, of which it is not known where it should be,
// that the field is not there.
func (l *loaded) sayAbsent(d *mistake, at []string, text string) {
	defer toLacking(l, d, at) // of which it says more
	name, ok := trace.MissingName(text)
	if !ok || !l.built || d.form != plain {
		return
	}
	d.form, d.about, d.Rule, d.operand = absentField, name, schema.RuleMissingField, strings.Contains(text, "optional field")
	d.Message, d.Hint = fmt.Sprintf("the parameter %s is not set", name), "it is used at "+d.Position.String()
	if home := l.where.enclosing(unquoted(at)); l.where.mine(home.Path) {
		d.Position = home
	}
	d.Field = strings.TrimPrefix(d.Field+"."+schema.Label(name), ".")
	f := l.where.requiredNamed(name)
	if f == nil {
		return
	}
	if misspelled := l.where.like(unquoted(at), name); misspelled != nil {
		word := lax.Label(misspelled)
		d.form, d.Rule, d.Position = closedField, schema.RuleUnknownField, position(misspelled.Label.Pos())
		d.Field = strings.TrimPrefix(fieldPath(at)+"."+schema.Label(word), ".")
		d.Message, d.Hint = fmt.Sprintf("field %q is not in the definition", word), fmt.Sprintf("did you mean %s?", name)
		return
	}
	d.Hint = "it is declared at " + position(f.Label.Pos()).String()
	d.Expected = terms.SayExpr(l.known(f.Value, 0))
	if in := l.where.holderOf(f); in != nil && strings.HasPrefix(lax.Label(in), "#") && len(at) == 2 {
		full := append(unquoted(at), lax.Label(in))
		if given := l.where.written(full); given != nil && l.where.mine(position(given.Label.Pos()).Path) {
			d.Position, d.Field = edge(given, true), fieldPath(append(full, name))
		}
	}
}

// known returns alternatives with the values that stand elsewhere in the place of the
// references to them, where these are known.
func (l *loaded) known(e ast.Expr, depth int) ast.Expr {
	if depth > maxDepth {
		return e
	}
	switch x := e.(type) {
	case *ast.BinaryExpr:
		if x.Op == token.AND {
			return &ast.BinaryExpr{X: l.known(x.X, depth+1), OpPos: x.OpPos, Op: x.Op, Y: l.known(x.Y, depth+1)}
		}
		if x.Op == token.OR {
			return &ast.BinaryExpr{X: l.element(x.X, depth+1), OpPos: x.OpPos, Op: x.Op, Y: l.element(x.Y, depth+1)}
		}
	case *ast.ParenExpr:
		return &ast.ParenExpr{Lparen: x.Lparen, X: l.known(x.X, depth+1), Rparen: x.Rparen}
	case *ast.UnaryExpr:
		if x.Op == token.MUL {
			return &ast.UnaryExpr{OpPos: x.OpPos, Op: x.Op, X: l.known(x.X, depth+1)}
		}
	case *ast.CallExpr:
		if len(x.Args) != 1 {
			return e
		}
		if elts := l.elements(x.Args[0], depth); elts != nil {
			return &ast.CallExpr{Fun: x.Fun, Lparen: x.Lparen, Args: []ast.Expr{&ast.ListLit{Elts: elts}}, Rparen: x.Rparen}
		}
	case *ast.ListLit:
		return l.knownList(x, depth)
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr:
		if lit := l.literalOf(x); lit != nil {
			return lit
		}
		if d := l.definition(x); d != nil && terms.Limits(d) {
			if _, isStruct := d.(*ast.StructLit); !isStruct {
				return l.known(d, depth+1)
			}
		}
	}
	return e
}

// knownList is known for the elements of a list.
func (l *loaded) knownList(x *ast.ListLit, depth int) ast.Expr {
	out := *x
	out.Elts = slices.Clone(x.Elts)
	for i, elt := range out.Elts {
		if rest, ok := elt.(*ast.Ellipsis); ok && rest.Type != nil {
			out.Elts[i] = &ast.Ellipsis{Ellipsis: rest.Ellipsis, Type: l.element(rest.Type, depth+1)}
		} else if !ok && !isComputed(elt) {
			out.Elts[i] = l.element(elt, depth+1)
		}
	}
	return &out
}

// literalOf returns the value that a reference stands for, nil if that is not known: a top
// level field of its package, or what lies in one.
func (l *loaded) literalOf(e ast.Expr) ast.Expr {
	return literalFor(l.inPackage(e))
}

// isComputed reports whether an element of a list stands for several.
func isComputed(e ast.Expr) bool {
	_, ok := e.(*ast.Comprehension)
	return ok
}

// literalFor returns a value that is a text or a number as it is written; nil for others.
func literalFor(v cue.Value) ast.Expr {
	v, _ = v.Default()
	if !v.IsConcrete() {
		return nil
	}
	if lit, ok := v.Syntax(cue.Final()).(*ast.BasicLit); ok {
		return lit
	}
	return nil
}

// inPackage evaluates an expression in the scope of the package that it stands in.
func (l *loaded) inPackage(e ast.Expr) cue.Value {
	in := instanceOf(l.inst, l.where.fileAt(e.Pos()))
	if in == nil {
		return cue.Value{}
	}
	s, ok := l.scopes[in]
	if !ok {
		s.context = cuecontext.New()
		s.value = s.context.BuildInstance(in)
		if l.scopes == nil {
			l.scopes = map[*build.Instance]scope{}
		}
		l.scopes[in] = s
	}
	return s.context.CompileString(terms.Text(e), cue.Scope(s.value), cue.ImportPath(in.ID()), cue.InferBuiltins(true))
}

// kindOf returns the kind of a literal.
func kindOf(literal string) string {
	switch t := typeOf(literal); t {
	case "[...]":
		return "list"
	default:
		return t
	}
}

// sayValue says of a value that is of another type than a library's what the strict
// pass says of it, and reports whether it says anything.
func (l *loaded) sayValue(d *mistake, at []string) bool {
	at = unquoted(at)
	if !l.built || len(at) < 3 {
		return false
	}
	f := l.where.written(at)
	if f == nil || !isData(f.Value) || !l.where.mine(position(f.Value.Pos()).Path) {
		return false
	}
	v := cuecontext.New().BuildExpr(f.Value)
	if v.Err() != nil {
		return false // it refers to something else
	}
	x := &exporter{left: l.req.Limits.OutputBytes}
	for _, p := range valid.Value(schema.Kind(at[0]), at[2:], x.plain(v, 0)) {
		if len(p.Path) != len(at)-2 {
			continue
		}
		d.Position, d.Rule, d.Message, d.Expected, d.Hint = edge(f, false), p.Rule, p.Message, p.Expected, p.Hint
		return true
	}
	return false
}

// unquoted returns a data path of CUE's, which quotes some labels, as plain names.
func unquoted(at []string) []string {
	out := make([]string, len(at))
	for i, s := range at {
		if u, err := strconv.Unquote(s); err == nil {
			s = u
		}
		out[i] = s
	}
	return out
}

// parameters returns those in the files of a package, without those of the schema: of its objects, and
// of the other top level fields that also reports.
func (l *loaded) parameters(also func(string) bool) *terms.Parameters {
	p := &terms.Parameters{}
	for _, f := range allFiles(l.inst) {
		name := strings.TrimPrefix(f.Filename, "/")
		if l.where.schema(name) {
			continue
		}
		if l.where.mine(name) {
			p.Objects(f, func(top string) bool { return valid.Of(schema.Kind(top)) != nil || also(top) })
		}
		p.Read(f)
	}
	return p
}

// unknownParameters returns the parameters that the package's objects set, and that neither a
// definition has nor anything uses.
func unknownParameters(p *terms.Parameters) (out []mistake) {
	known := slices.Sorted(maps.Keys(p.Declared))
	for _, g := range p.Given {
		if len(known) == 0 || p.Declared[g.Name] || p.Used[g.Name] || len(out) >= maxDiagnostics {
			continue
		}
		d := schema.Diagnostic{
			Severity: schema.Error, Rule: schema.RuleUnknownField, Position: position(g.Label.Pos()),
			Message: fmt.Sprintf("no definition has the parameter %s, and nothing uses it", clip(g.Name)),
			Hint:    "remove it, or declare it in the definition that is to use it",
		}
		if !slices.Contains(g.Path, "") { // else the name of the object is computed
			d.Field = fieldPath(g.Path)
		}
		near := valid.Nearest(g.Name, known)
		if near != "" {
			d.Hint = fmt.Sprintf("did you mean %s?", near)
		}
		out = append(out, mistake{Diagnostic: d, about: near, top: g.Path[0]})
	}
	return out
}

// labelsOf returns the labels of a data path.
func labelsOf(at cue.Path) (labels []string) {
	for _, s := range at.Selectors() {
		if s.LabelType() == cue.StringLabel {
			labels = append(labels, s.Unquoted())
		} else {
			labels = append(labels, s.String())
		}
	}
	return labels
}

// checked says an error that a check of the repository's own CUE is the reason of: one in
// a hidden field of what is checked, or a call of error. What is checked is an object, or what
// objects are made from: a struct in a hidden field. It reports whether it is one.
func (l *loaded) checked(d *mistake, at []string, e errors.Error) bool {
	if len(at) > 0 && strings.HasPrefix(at[0], "_") { // a library makes the objects, in a hidden field
		if i := slices.IndexFunc(at, func(s string) bool { return valid.Of(schema.Kind(s)) != nil }); i > 0 && l.where.value(unquoted(at[i:min(len(at), i+2)])).Exists() {
			at = at[i:]
		}
	}
	if l.built && len(at) > 0 && strings.ContainsAny(at[0][:1], "_#") {
		return l.checkedHidden(d, at, e)
	}
	if l.built && (len(at) < 2 || valid.Of(schema.Kind(at[0])) == nil) && calls(l, e) { // in what has no data path
		c, _ := terms.CheckAt(l.where.fileAt(e.Position()), e.Position())
		d.Rule, d.Message, d.Hint, d.Field = schema.RuleCheck, cmp.Or(c.Message, d.Message), fmt.Sprintf("the check is at %s", position(c.At)), ""
		return true
	}
	if !l.built || len(at) < 2 || valid.Of(schema.Kind(at[0])) == nil {
		return false
	}
	hidden := slices.IndexFunc(at[2:], func(s string) bool { return strings.HasPrefix(s, "_") })
	if hidden >= 0 {
		return l.sayCheck(d, unquoted(at[:2+hidden]), append([]token.Pos{e.Position()}, errors.Positions(e)...))
	}
	c, ok := terms.CheckAt(l.where.fileAt(e.Position()), e.Position())
	if ok && c.Call && len(at) == 2 { // it is embedded in the object, or in what that is taken from
		return l.sayCheck(d, unquoted(at), append([]token.Pos{e.Position()}, errors.Positions(e)...))
	}
	if !ok || c.Message == "" {
		return false
	}
	d.Rule, d.Message, d.Hint = schema.RuleCheck, c.Message, fmt.Sprintf("the check is at %s", position(c.At))
	if !l.where.mine(d.Path) {
		d.Position = l.where.enclosing(unquoted(at))
		if f := l.where.written(unquoted(at)); f != nil {
			d.Position = edge(f, false)
		}
	}
	return true
}

// meant returns the one of some words that a text is a misspelling of, "" if there is none, or it could be several.
func meant(text string, words []string) string {
	near := valid.Nearest(text, words)
	if others := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == near }); valid.Nearest(text, others) != "" {
		return ""
	}
	return near
}

// wrongOperand is what CUE says of an operand of a wrong type: that is no check.
var wrongOperand = lazyregexp.New(`mismatched types|^invalid operand|^cannot use `)

// checkedHidden is checked for data in a hidden field at the top, that is no object. A hidden field of the
// package itself may be there for other reasons than to be a check.
func (l *loaded) checkedHidden(d *mistake, at []string, e errors.Error) bool {
	if text := errorText(e); undecidedText.MatchString(text) || unresolved.MatchString(text) || wrongOperand.MatchString(text) {
		return false
	}
	of := unquoted(at)
	last := len(of) - 1
	if last > 1 && strings.Trim(of[last], "0123456789") == "" && strings.HasPrefix(of[last-1], "_") {
		of, last = of[:last], last-1 // an element of a list of checks
	}
	places := append([]token.Pos{e.Position()}, errors.Positions(e)...)
	for i, pos := range places {
		c, ok := terms.CheckAt(l.where.fileAt(pos), pos)
		switch {
		case !ok:
			continue
		case !c.Call && (c.Field != of[last] || last == 0 || l.where.mine(position(c.At).Path) && !c.IsTrue):
			continue
		case last > 0 && strings.HasPrefix(of[last], "_"):
			of = of[:last]
		}
		return l.sayCheck(d, of, places[i:])
	}
	return false
}

// sayCheck says of a check of the repository's own CUE that does not hold which of the
// user's values breaks it; at is the path of the data that is checked. It reports whether
// there is such a check at one of the places.
func (l *loaded) sayCheck(d *mistake, at []string, places []token.Pos) bool {
	c, ok := l.checkAt(places)
	if !ok {
		return false
	}
	custom := d.Message
	d.Rule, d.Hint, d.Expected = schema.RuleCheck, fmt.Sprintf("the check is at %s", position(c.At)), ""
	switch {
	case c.Message != "":
		d.Message = c.Message
	case c.Holds != "":
		d.Message, d.Expected = "does not pass a check", c.Holds
	default: // it is computed
		d.Message = custom
	}
	d.Position, d.Field = l.where.enclosing(append(slices.Clone(at), "")), fieldPath(at)
	l.sayLooked(d, at, c)
	return true
}

// checkAt returns the check at the first of some places that is one: where a hidden field has to be true, that
// which says what of.
func (l *loaded) checkAt(places []token.Pos) (found terms.Check, ok bool) {
	for _, pos := range places {
		c, is := terms.CheckAt(l.where.fileAt(pos), pos)
		if is && (!ok || found.Holds == "" && !found.Call && c.Holds != "" && c.Field == found.Field) {
			found, ok = c, true
		}
	}
	return found, ok
}

// sayLooked places a check of the data at a path at the first of the values that it looks at that the
// package itself gives.
func (l *loaded) sayLooked(d *mistake, at []string, c terms.Check) {
	look := looking(l, l, at, c)
	all := look.Paths()
	for _, full := range all {
		d.looks = append(d.looks, fieldPath(full))
		for _, o := range trace.Origins(l.where.value(full)) {
			d.looks = append(d.looks, fieldPath(labelsOf(o.Path)))
		}
	}
	d.looks = append(d.looks, l.fromParameters(look.Object(), c.Looks)...)
	full, pos, ok := l.where.gives(all)
	for i := 0; i < len(all) && !ok; i, ok = i+1, pos.Path != "" { // or a file that a library embeds
		full, pos = all[i], inFile(l.where.value(all[i]))
	}
	if ok {
		d.Position, d.Field = pos, fieldPath(full)
		sayRepeated(l, d, full, c)
	}
}

// fromParameters returns the data paths that what a check looks at has in what is given for the parameters
// of an object: a template may have taken it from there, had it been right.
func (l *loaded) fromParameters(object []string, looks [][]string) (out []string) {
	of := l.where.value(object)
	if !of.Exists() {
		return nil
	}
	it, err := of.Fields(cue.Definitions(true))
	for err == nil && it.Next() {
		if !it.Selector().IsDefinition() {
			continue
		}
		for _, o := range trace.Origins(it.Value()) {
			for _, names := range looks {
				out = append(out, fieldPath(append(labelsOf(o.Path), names[len(names)-1])))
			}
		}
	}
	return out
}
