package compile

import (
	"bytes"
	"cmp"
	"encoding/json"
	stderrors "errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/encoding/yaml"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/syntax"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/compile/walk"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

const (
	// maxFound bounds what is looked at: a mistake in a comprehension shows in
	// each of thousands of objects, and is then folded.
	maxFound = 1000
	// maxPlaces bounds at how many places of a package: no more mistakes are reported, and
	// each is searched for in all of it.
	maxPlaces = maxDiagnostics
)

// explained returns those of some errors that are looked at: the first maxFound, of which none
// is at other places than the first maxPlaces.
func explained(errs []errors.Error) []errors.Error {
	places := map[string]bool{}
	kept := make([]errors.Error, 0, min(len(errs), maxFound))
	for _, e := range errs {
		var at strings.Builder
		for _, p := range errors.Positions(e) {
			fmt.Fprintln(&at, p)
		}
		if places[at.String()] || len(places) < maxPlaces {
			places[at.String()] = true
			kept = append(kept, e)
		}
		if len(kept) == maxFound {
			break
		}
	}
	return kept
}

// diagnose turns CUE's errors into mistakes: one for each data path, the one that
// says most.
func diagnose(l *loaded, errs []errors.Error) []mistake {
	type ranked struct {
		rank int
		mistake
	}
	best := map[string]ranked{}
	syntax := map[string]bool{} // files with a syntax error: the first counts
	var out []mistake
	for _, e := range errs {
		d, rank := l.diagnostic(e)
		d.failure = ofFailure.FindString(d.Message)
		if ofArgument.MatchString(qualifier.ReplaceAllString(errorText(e), "$1")) {
			rank += 20 // what CUE says of the value itself is better
		}
		if d.Field == "" {
			if !l.built && syntax[d.Path] {
				continue
			}
			syntax[d.Path] = true
			out = append(out, d)
			continue
		}
		key := d.key()
		if old, ok := best[key]; !ok || rank < old.rank {
			best[key] = ranked{rank, d}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(best)) {
		d := best[key]
		if name, ok := strings.CutPrefix(d.Message, "required field missing: "); ok && slices.ContainsFunc(slices.Collect(maps.Keys(best)), func(f string) bool {
			return f != d.Field && strings.HasSuffix(f, "."+name)
		}) {
			continue // said of the field itself
		}
		covered := false
		for _, o := range best {
			covered = covered || o.says(d.mistake)
		}
		if !covered {
			out = append(out, d.mistake)
		}
	}
	return out
}

// ofCall is all that CUE says of a function some argument of which is wrong.
var ofCall = lazyregexp.New(`^error in call to [^ :]+(?:: .*[0-9]+ errors in empty disjunction:?)?$`)

// diagnostic turns one error into a mistake and says how well it explains: lower
// ranks do better.
func (l *loaded) diagnostic(e errors.Error) (d mistake, rank int) {
	at := e.Path()
	if d, ok := l.ofParameter(e); ok {
		return d, -5
	}
	if !l.built {
		at = nil // not data
		if inner := imported(e); position(inner.Position()).Path != "" {
			e = inner
		}
	}
	text := errorText(e)
	if of, what := argument(text, e.Path()); of != nil {
		at, text = of, what
	}
	at = ofField(text, at)
	d.Diagnostic = schema.Diagnostic{Severity: schema.Error, Rule: ruleOf(text), Field: fieldPath(at), Message: text}
	d.undecided = undecidedText.MatchString(text)
	if target := unresolvable.FindStringSubmatch(text); target != nil {
		d.form, d.about = badImport, target[1]
	}
	format, _ := e.Msg()
	mine, theirs := l.where.ofError(e, at)
	d.Position, rank = mine, rankOf(format)
	if mine.Path == "" || !l.where.mine(mine.Path) {
		rank += 5
	}
	if pos := position(e.Position()); pos.Path != "" && !l.built && syntax.IsError(d.Message) {
		d.Position = pos
	} else if d.Path == "" {
		d.Position = l.where.of(at, false)
	}
	if strings.Contains(d.Field, "[]\"") { // of a comprehension or a pattern: no data path
		d.Field = ""
	}
	if d.Message == "field is required but not present" && len(at) > 0 {
		l.sayRequired(&d, at, e)
	}
	switch {
	case d.undecided:
		d.refs = refsOf(l, e, at)
	case strings.Contains(d.Message, "field not allowed"):
		d.Position, theirs = l.where.labelInData(at, d.Position), l.where.closedAt(e)
	case strings.Contains(d.Message, "does not satisfy match"):
		theirs = l.where.matchedAt(e)
	}
	if l.checked(&d, at, e) {
		return d, rank - 10 // whoever wrote the check knows best
	}
	if strings.Contains(format, "mismatched types") && l.sayValue(&d, at) {
		return d, rank
	}
	if l.sayUnset(&d, at, e) || l.sayUnnamed(&d, at, e) || l.sayIndex(&d, at, e) {
		return d, -5
	}
	explain(l, &d, theirs)
	l.sayAbsent(&d, at, text)
	if d.Rule == schema.RuleConflict && strings.Contains(format, "mismatched types") {
		rank += 2 // that it is of no type that is wanted is said of another alternative
	}
	return d, rank
}

// labelInData returns where a file that the package embeds has the label at a data path, or else another place.
func (p *positions) labelInData(at []string, other schema.Position) schema.Position {
	if label, ok := p.inData(unquoted(at), true); ok {
		return label
	}
	return other
}

// sayMatched is of a value that a call of matchN or matchIf does not take. What else CUE says is of one
// of the forms, with paths of its own.
func (l *loaded) sayMatched(d *mistake, value string, calls []schema.Position) {
	d.Message, d.Expected = terms.Clip(value)+" is not valid", ""
	for _, at := range calls {
		if call := terms.MatchedAt(l.where.fileOf(at), at.Line, at.Column); call != nil {
			d.Expected = terms.SayExpr(call)
		}
	}
}

// matchedAt returns the call of matchN or matchIf that an error is of, as the only position, if it is
// written outside of the schema.
func (p *positions) matchedAt(e errors.Error) []schema.Position {
	for _, tp := range errors.Positions(e) {
		pos := position(tp)
		if pos.Path == "" || p.schema(pos.Path) {
			continue
		}
		if call := terms.MatchedAt(p.fileOf(pos), pos.Line, pos.Column); call != nil {
			return []schema.Position{position(call.Pos())}
		}
	}
	return nil
}

// imported returns what went wrong in the package that an import failed for:
// the import itself is right.
func imported(e errors.Error) errors.Error {
	for {
		format, _ := e.Msg()
		var inner errors.Error
		if !strings.Contains(format, "import failed") || !stderrors.As(stderrors.Unwrap(e), &inner) {
			return e
		}
		e = inner
	}
}

var rooted = lazyregexp.New(`(^|[ ("])/([^ "]*\.cue)`)

// errorText returns the message of an error without path and position, in one
// line.
func errorText(e errors.Error) string {
	e = imported(e)
	format, args := e.Msg()
	args = slices.Clone(args)
	for i, a := range args { // the types that come after them say more
		if s := fmt.Sprint(a); len(s) > 2*maxLabel {
			args[i] = strings.ToValidUTF8(s[:2*maxLabel], "") + "…"
		}
	}
	s := fmt.Sprintf(format, args...)
	if cause := stderrors.Unwrap(e); cause != nil && !strings.Contains(s, cause.Error()) {
		s = strings.TrimPrefix(s+": "+cause.Error(), ": ")
	}
	if s == "" {
		s = e.Error()
	}
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	s = rooted.ReplaceAllString(s, "$1$2") // the root is the repository's
	if most := 300; len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return cmp.Or(s, "unknown error")
}

// undecidedText is what CUE says of an expression whose operands have no values.
var undecidedText = lazyregexp.New(`undefined as |incomplete |non-concrete value|unresolved disjunction|errors in empty disjunction`)

// emptyDisjunction is what CUE says before it says what is wrong with each of several alternatives.
var emptyDisjunction = lazyregexp.New(`^[0-9]+ errors in empty disjunction:?$`)

// ofAnything is what CUE says of an index of which nothing is known, as it may be anything.
var ofAnything = lazyregexp.New(`^invalid index (_|.* \(invalid type _\)$)`)

// notThereText is what CUE says of a part of a value that the value does not have.
var notThereText = lazyregexp.New(`index out of range`)

// A mistake in what a template is given shows wherever the template uses it, and CUE says so of
// each. What a user wants to know is the one place where it was made.

// reason is what a mistake comes from.
type reason int

const (
	itself    reason = iota // it is one of its own
	another                 // another mistake
	notGiven                // a parameter that is not given
	inLibrary               // a definition that is wrong itself
)

// withoutUndecided returns the errors of a lax evaluation without those that only say that
// something has no value, which is so since what constrains it was taken out: the strict
// evaluation has those that are of the user.
func withoutUndecided(wide, strict []errors.Error) []errors.Error {
	known := map[string]bool{}
	for _, e := range strict {
		known[fieldPath(e.Path())] = true
	}
	return slices.DeleteFunc(slices.Clone(wide), func(e errors.Error) bool {
		text := errorText(e)
		return ofAnything.MatchString(text) || (undecidedText.MatchString(text) || notThereText.MatchString(text)) && !known[fieldPath(e.Path())]
	})
}

// causes returns what is wrong with a package without what only follows from something else
// that is wrong, and with the parameters that are not given, or that no template has.
func causes(strict, wide *loaded, found []mistake) []mistake {
	out := ineffective(strict)
	found = withoutBranches(strict, found, out)
	all := slices.Concat(found, out)
	missing := map[string]mistake{}
	unknown := len(out) > 0
	for _, d := range found {
		if unknown && (d.Rule == schema.RuleCheck || (d.undecided || d.Rule == schema.RuleUndefined) && !strict.where.mine(d.Path)) {
			continue // the library uses the parameter that was meant
		}
		if onlySince(d, all) {
			continue
		}
		if d.form == absentField || d.form == missingField && strings.HasPrefix(lastOf(d.Field), "#") {
			missing[d.Field] = d
			continue
		}
		c, why := causeOf(strict, wide, d, all)
		switch why {
		case itself:
			if lack := lackingFor(strict, d); len(lack) > 0 {
				for _, m := range lack {
					missing[m.Field] = m
				}
				break
			}
			place(wide, &d)
			out = append(out, d)
		case inLibrary:
			out = append(out, c)
		case notGiven:
			missing[c.Field] = c
		}
	}
	maps.DeleteFunc(missing, func(_ string, m mistake) bool { return madeFromUndefined(strict, m, found) })
	out = withLacking(out, notGivenOnce(missing, strict.where.data.whole))
	if rest := slices.DeleteFunc(slices.Clone(out), func(d mistake) bool { return emptyDisjunction.MatchString(d.Message) }); len(rest) > 0 {
		out = rest // which say more
	}
	if len(out) == 0 {
		// Each explains another: a package with mistakes is never without one.
		if mine := slices.DeleteFunc(slices.Clone(found), func(d mistake) bool { return !strict.where.mine(d.Path) }); len(mine) > 0 {
			return mine
		}
		return found
	}
	return folded(once(strict, withoutResults(wide, withoutUnset(out, strict.where.mine))))
}

// causeOf finds what a mistake comes from, and says so if that is a parameter that is not given.
func causeOf(strict, wide *loaded, d mistake, all []mistake) (mistake, reason) {
	if o, ok := ofDefinition(strict, d); ok {
		return o, inLibrary
	}
	sels := selectors(strict, d.Field)
	if d.form != plain || d.Rule == schema.RuleCheck || !wide.built || len(sels) < 3 || sels[len(sels)-1].IsDefinition() && strict.where.mine(d.Path) {
		return mistake{}, itself
	}
	if sels[0].LabelType() != cue.HiddenLabel && valid.Of(schema.Kind(sels[0].String())) == nil {
		return mistake{}, itself
	}
	object := cue.MakePath(sels[:2]...).String()
	var c mistake
	why := itself
	origins := trace.Origins(wide.value.LookupPath(cue.MakePath(sels...)))
	if d.Rule == schema.RuleNotSet { // of an element of a list nothing is known without what it may be
		origins = append(origins, trace.Origins(strict.value.LookupPath(cue.MakePath(sels...)))...)
	}
	for _, o := range origins {
		at, places := o.Path.String(), placesOf(o.Value)
		if slices.ContainsFunc(all, func(m mistake) bool {
			return m.Field != "" && m.Field != d.Field && !m.repeats(d) && (m.explains(d, at, o, places) || m.explains(d, object+"."+at, o, places))
		}) {
			return mistake{}, another
		}
		declared := position(o.Value.Pos()).Path
		if (why == itself || !strict.where.mine(c.Path)) && trace.NoValue(o.Value) && !wide.where.schema(declared) && !wide.where.mine(declared) && isParameter(o.Path) && !isType(o.Path) {
			if next := sayNotGiven(strict, object, o); why == itself || strict.where.mine(next.Path) {
				c, why = next, notGiven // the first, or the first that the package itself is to give
			}
		}
	}
	return c, why
}

// explains reports whether d follows from m, if what d is of refers to the value at a path, which is written at places.
func (m mistake) explains(d mistake, at string, o trace.Origin, places []schema.Position) bool {
	switch {
	case m.form == closedField:
		return parent(m.Field) == parent(at) && (trace.NoValue(o.Value) || m.about == lastOf(at))
	case d.undecided && within(m.Field, parent(at)) && strings.Count(parent(at), ".") > 1:
		return true // CUE gives up all of a struct
	case m.Rule == schema.RuleUndefined && m.about != "": // the field that a struct lacks, not the struct
		return within(at, m.Field+"."+m.about)
	}
	return within(at, m.Field) || within(m.Field, at) || slices.Contains(places, m.Position)
}

// placesOf returns where what a value is joined from is written.
func placesOf(v cue.Value) (out []schema.Position) {
	out = append(out, valueAt(v))
	if op, args := trace.Expr(v); op == cue.AndOp {
		for _, a := range args {
			out = append(out, valueAt(a))
		}
	}
	return out
}

// onlySince reports whether there is nothing to do about a mistake once another one is repaired: a
// selection from what is not defined, a let clause that nothing uses since the name is misspelled,
// the second time that an import is missed, or the same data under another name.
func onlySince(d mistake, all []mistake) bool {
	return slices.ContainsFunc(all, func(m mistake) bool {
		switch {
		case m.Position == d.Position && m.Field == d.Field:
			return false
		case d.Rule == schema.RuleConflict && m.repeated != "":
			return strings.Contains(d.Field, m.repeated)
		case d.Rule == schema.RuleCheck && d.Field == "":
			return m.Rule == schema.RuleCheck && m.Hint == d.Hint
		case d.Rule == schema.RuleCheck && slices.ContainsFunc(d.looks, func(at string) bool { return strings.HasPrefix(lastOf(at), "_") }):
			return m.Rule != schema.RuleCheck && m.ofParameter() && objectOf(m.Field) == objectOf(d.Field) // computed from what, is not known
		case d.Rule == schema.RuleCheck:
			return m.Rule != schema.RuleCheck && depth(m.Field) > 1 && slices.ContainsFunc(d.looks, func(at string) bool {
				return within(m.Field, at) || within(at, m.Field) || m.form == closedField && parent(m.Field) == parent(at) && m.about == lastOf(at)
			})
		case d.follows: // CUE says in it what was wrong before
			return !m.follows
		case ofCall.MatchString(d.Message):
			return !ofCall.MatchString(m.Message) && m.Rule != schema.RuleCheck && (m.ofParameter() || objectOf(m.Field) == objectOf(d.Field))
		case d.ranges != "":
			return m.ofParameter() && (within(m.Field, d.Field) || m.ofType() && (lastOf(m.Field) == d.ranges || objectOf(m.Field) == objectOf(d.Field)))
		case d.Rule == schema.RuleNotSet && m.form == selfCycle:
			return m.Path == d.Path && m.Line == d.Line && lastOf(m.Field) == lastOf(d.Field)
		case d.form == unusedName:
			return m.form == undefinedName && m.Path == d.Path
		case d.form == undefinedName && m.form == undefinedName && m.Path == d.Path && m.Compare(d.Diagnostic) < 0:
			return m.about == d.about
		}
		return d.repeats(m) || m.hides(d)
	})
}

// place moves a mistake that shows in a library to where the package gives the value, if it does.
func place(l *loaded, d *mistake) {
	sels := selectors(l, d.Field)
	if d.form != plain || d.Rule == schema.RuleCheck || !l.built || len(sels) < 3 {
		return
	}
	if at, ok := l.where.inData(labelsOf(cue.MakePath(sels...)), false); ok {
		d.Position = at
		return
	}
	if l.where.mine(d.Path) {
		toRow(l, d, sels)
		return
	}
	name := labelsOf(cue.MakePath(sels[:len(sels)-1]...))
	if label := strconv.Quote(name[len(name)-1]); strings.HasPrefix(d.Message, label+" ") || d.Message == "is "+label {
		if at := l.where.of(name, true); l.where.mine(at.Path) { // the name of what it is in
			d.Position = at
			return
		}
	}
	if at, ok := l.where.given(l.value.LookupPath(cue.MakePath(sels...))); ok {
		toGiven(l, d, at)
		return
	}
	labels := labelsOf(cue.MakePath(sels...))
	if d.Message != "the list is out of bounds" || !d.ofParameter() || l.where.written(labels) != nil {
		return
	}
	if home := l.where.enclosing(labels); l.where.mine(home.Path) { // nothing is given: the list is empty
		d.Rule, d.Position, d.Message = schema.RuleMissingField, home, fmt.Sprintf("the parameter %s is not set", lastOf(d.Field))
	}
}

// sayNotGiven says that a parameter is not given: the outermost of what it lies in that is not.
func sayNotGiven(l *loaded, object string, o trace.Origin) mistake {
	labels := labelsOf(o.Path)
	for len(labels) > 1 && decimal.MatchString(labels[len(labels)-1]) {
		labels = labels[:len(labels)-1] // of an element: the list is not given
	}
	if o.Value.Path().String() != "" && len(labels) > 0 && !strings.HasPrefix(labels[0], "_") && !strings.HasPrefix(labels[0], "#") && valid.Of(schema.Kind(labels[0])) == nil {
		labels = slices.Concat(labelsOf(cue.ParsePath(object)), labels)
	}
	if op, conjuncts := trace.Expr(o.Value); op == cue.AndOp {
		if d, ok := sayTwoDefaults(l, labels, conjuncts); ok {
			return d
		}
	}
	least := 2
	if valid.Of(schema.Kind(labels[0])) != nil {
		least = 3
	}
	for len(labels) > least && l.where.written(labels[:len(labels)-1]) == nil {
		if _, embedded := l.where.inData(labels[:len(labels)-1], false); embedded {
			break
		}
		labels = labels[:len(labels)-1]
	}
	name := labels[len(labels)-1]
	d := schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleMissingField, Field: fieldPath(labels), Position: l.where.enclosing(labels),
		Message: fmt.Sprintf("the parameter %s is not set", name),
	}
	if top := l.where.of(labels[:1], true); len(labels) == 2 && !l.where.mine(d.Path) && l.where.mine(top.Path) {
		d.Position = top // a parameter of the template that makes all objects of a kind
	}
	f := l.where.holder(name, valueAt(o.Value))
	if f == nil {
		return mistake{Diagnostic: d, about: name}
	}
	d.Expected = terms.SayExpr(l.known(f.Value, 0))
	if u, ok := trace.UnionOf(o.Value); ok {
		if all := anyOf(u); all != nil && !u.Structs() {
			d.Expected = terms.SayExpr(all)
		}
	}
	if o.Value.IncompleteKind() == cue.StructKind {
		d.Expected = "a struct"
		if names := trace.Fields(o.Value, nil, "").Fields; len(names) > 0 {
			d.Expected = "a struct with " + strings.Join(names, ", ")
		}
	}
	if l.lax && d.Expected == terms.Say("_") {
		d.Expected = "" // what it may be was taken out
	}
	d.Hint = fmt.Sprintf("it is declared at %s", position(f.Label.Pos()))
	if misspelled := l.where.like(labels[:len(labels)-1], name); misspelled != nil { // of a struct that may have any field
		word := lax.Label(misspelled)
		d.Rule, d.Position, d.Field = schema.RuleUnknownField, position(misspelled.Label.Pos()), fieldPath(append(slices.Clone(labels[:len(labels)-1]), word))
		d.Message, d.Expected, d.Hint = fmt.Sprintf("field %q is not in the definition", word), "", fmt.Sprintf("did you mean %s?", name)
	}
	return mistake{Diagnostic: d, about: name}
}

// sayEmbedded is of an embedded file that cannot be read as what its name says it is: JSON, YAML, TOML.
func sayEmbedded(l *loaded, d *mistake, m []string, _ []schema.Position) {
	from := l.where.attribute(m[2], d.Position)
	name := path.Join(path.Dir(from.Path), m[2])
	d.Rule, d.Message, d.Hint = schema.RuleSyntax, fmt.Sprintf("is not valid %s: %s", m[1], terms.Clip(m[3])), fmt.Sprintf("it is embedded at %s", from)
	d.Position, d.Field = schema.Position{Path: name, Line: 1, Column: 1}, ""
	if line := lineNumber.FindStringSubmatch(m[3]); line != nil {
		d.Line, _ = strconv.Atoi(line[1])
	}
	data := l.req.Files[name]
	var bad *json.SyntaxError
	if err := json.Unmarshal(data, new(any)); m[1] == "JSON" && errors.As(err, &bad) {
		before := data[:max(0, min(int(bad.Offset)-1, len(data)))]
		d.Line, d.Column = 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n')
	}
}

// sayYAML is of an embedded file that is no YAML. Its line is often said to be that of what encloses it.
func sayYAML(l *loaded, d *mistake, m []string, _ []schema.Position) {
	sayEmbedded(l, d, []string{"", "YAML", m[1], cmp.Or(yamlWords[m[3]], m[3])}, nil)
	d.Line, _ = strconv.Atoi(m[2])
	d.Line = max(d.Line, wrongLine(l.req.Files[d.Path]))
}

// sayTwice is of a key that a file which is embedded has twice.
func sayTwice(l *loaded, d *mistake, m []string, _ []schema.Position) {
	at := pathLabel.FindAllString(m[1], -1)
	names := []string{l.where.data.whole(d.Path)}
	if strings.HasSuffix(d.Path, ".cue") {
		names = slices.DeleteFunc(slices.Sorted(maps.Keys(l.req.Files)), func(name string) bool { return !l.where.data.embeddedAt(name, d.Position) })
	}
	from := d.Position
	if len(names) > 0 {
		from = l.where.attribute(path.Base(names[0]), d.Position)
	}
	d.Rule, d.Message, d.Field = schema.RuleConflict, fmt.Sprintf("%s is there twice, as %s and %s", at[len(at)-1], m[3], m[2]), ""
	d.Hint = fmt.Sprintf("keep one of them; the file is embedded at %s", from)
	for _, name := range names {
		f, err := yaml.Extract(name, l.req.Files[name]) // JSON is YAML
		var found []*ast.Field
		if err == nil {
			found = append(found, walk.Find(f.Decls, at)...)
		}
		if len(found) > 1 {
			d.Position = position(found[1].Label.Pos())
		}
	}
}

// attribute returns where a package embeds the file of a name: at, if that is in CUE.
func (p *positions) attribute(name string, at schema.Position) schema.Position {
	for _, f := range p.files {
		if strings.HasSuffix(at.Path, ".cue") {
			break
		}
		ast.Walk(f, func(n ast.Node) bool {
			if a, ok := n.(*ast.Attribute); ok && strings.Contains(a.Text, name) {
				at = position(a.Pos())
			}
			return true
		}, nil)
	}
	return at
}

var lineNumber = lazyregexp.New(`(?:line |:)([0-9]{1,6})\b`)
