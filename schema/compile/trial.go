package compile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// A mistake follows from others if it is gone once these are corrected, whatever a library makes of what
// they are in. So a package is evaluated again with what was probably meant in the place of what is wrong,
// or else with any right value. What is found only then was hidden.

// trial is what is wrong with a package once some of its mistakes are corrected.
type trial struct {
	found   []mistake // what is wrong with it as it is
	guessed []mistake // the same, with what stands in the place of what is wrong
	put     []bool    // which of these are corrected
	left    []mistake // what is wrong with it then
	tried   bool      // some are
}

// try corrects the mistakes of a package of which it is known how, all at once.
func try(req request, found []mistake) trial {
	t := trial{found: found, guessed: withStandIns(req, found), put: make([]bool, len(found))}
	files := maps.Clone(req.Files)
	done := map[schema.Position]bool{}
	for _, i := range fromTheEnd(t.guessed) {
		d := t.guessed[i]
		if done[d.Position] {
			t.put[i] = true
			continue
		}
		name := fileNamed(req, d.Path)
		if data, ok := corrected(files[name], d); ok {
			files[name], t.put[i], t.tried, done[d.Position] = data, true, true, true
		}
	}
	if t.tried {
		req.Files = files
		t.left, t.tried = mistakesOf(req)
	}
	return t
}

// fromTheEnd returns the indices of mistakes in the order of their places, the last one first: what is written in the
// place of one moves none of those before it.
func fromTheEnd(found []mistake) []int {
	order := make([]int, len(found))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return found[b].Position.Compare(found[a].Position) })
	return order
}

// fileNamed returns the path of a file by the name that its positions have: that of an embedded one is from where it is
// embedded.
func fileNamed(req request, name string) string {
	for _, full := range []string{name, path.Join(req.Dir, name)} {
		if _, ok := req.Files[full]; ok {
			return full
		}
	}
	found := ""
	for full := range req.Files {
		if !strings.HasSuffix(full, "/"+name) {
			continue
		}
		if found != "" {
			return "" // it may be any of them
		}
		found = full
	}
	return found
}

// causes returns the mistakes without those that are gone once others are corrected.
func (t trial) causes() []mistake {
	if !t.tried || slices.ContainsFunc(t.left, func(d mistake) bool { return d.Rule == schema.RuleSyntax && !slices.ContainsFunc(t.found, d.isAgain) }) {
		return t.found
	}
	beside := func(d mistake) bool { // of the same value, if in other words
		for i, o := range t.found {
			if t.put[i] && o.Position == d.Position {
				return true
			}
		}
		return false
	}
	var out []mistake
	for i, d := range t.found {
		if slices.ContainsFunc(out, func(o mistake) bool { return o.Position == d.Position && o.Rule == d.Rule && o.Message == d.Message }) {
			continue // the same value, under another name
		}
		if t.put[i] || d.isCertain() || beside(d) || slices.ContainsFunc(t.left, d.isAgain) {
			out = append(out, d)
		}
	}
	return out
}

// isCertain reports whether a mistake is in what is written, whatever that is evaluated to.
func (m mistake) isCertain() bool {
	switch m.form {
	case unusedImport, badImport, undefinedName, unusedName, wrongDefinition, absentDefinition:
		return true
	}
	return m.Rule == schema.RuleSyntax
}

// isAgain reports whether m, which is found once others are corrected, is what o was before.
func (m mistake) isAgain(o mistake) bool {
	if (m.Rule == schema.RuleSyntax) != (o.Rule == schema.RuleSyntax) {
		return false
	}
	return m.Path == o.Path && m.Line == o.Line || m.Field != "" && m.Field == o.Field
}

// behind returns what is wrong with values that misspelled ones hide, as the cell of a row hides all of
// the job that has a name with it: what is found once these are as they were probably meant.
func (t trial) behind(req request) (out []mistake) {
	for _, d := range t.left {
		moved := map[schema.Position]bool{}
		for i, o := range t.guessed {
			if t.put[i] && o.Path == d.Path && o.Line == d.Line && o.Column < d.Column && !moved[o.Position] {
				d.Column += len(o.is) - len(o.meant)
				moved[o.Position] = true
			}
		}
		known := func(o mistake) bool { return o.Position == d.Position }
		follows := func() bool {
			for i, o := range t.guessed {
				if o.meant != t.found[i].meant && d.mayFollow(o) {
					return true
				}
			}
			return false
		}
		switch d.Rule {
		case schema.RuleWrongType, schema.RuleOutOfRange, schema.RuleInvalidValue, schema.RuleUnknownField, schema.RuleMissingField:
			if !slices.ContainsFunc(t.found, known) && (path.Dir(d.Path) == req.Dir || !strings.HasSuffix(d.Path, ".cue")) && !follows() {
				out = append(out, d)
			}
		}
	}
	return out
}

// corrected returns a file with a misspelled text as it is probably meant, false if it does not stand
// where the mistake is.
func corrected(data []byte, d mistake) ([]byte, bool) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	if d.meant == "" || d.Line < 1 || d.Line > len(lines) || d.Column < 1 || d.Column > len(lines[d.Line-1]) {
		return nil, false
	}
	line := lines[d.Line-1]
	rest := line[d.Column-1:]
	quote := rest[:len(rest)-len(bytes.TrimLeft(rest, `"'`))]
	if bytes.HasPrefix(rest, []byte(d.is)) {
		quote = nil
	}
	if !bytes.HasPrefix(rest[len(quote):], []byte(d.is)) {
		return nil, false
	}
	lines[d.Line-1] = slices.Concat(line[:d.Column-1], quote, []byte(d.meant), rest[len(quote)+len(d.is):])
	return bytes.Join(lines, nil), true
}

// withStandIns returns mistakes with what may stand in the place of what is wrong: for the values that it hides it
// does not matter which right one does.
func withStandIns(req request, found []mistake) []mistake {
	out := slices.Clone(found)
	for i := range out {
		d := &out[i]
		lines := bytes.Split(req.Files[fileNamed(req, d.Path)], []byte("\n"))
		if d.Line < 1 || d.Line > len(lines) || d.Column < 1 || d.Column > len(lines[d.Line-1]) {
			continue
		}
		rest := lines[d.Line-1][d.Column-1:]
		if d.Rule == schema.RuleUnknownField && (bytes.Count(rest, []byte(":")) > 1 || bytes.ContainsAny(rest, "{(&") || bytes.Count(rest, []byte("[")) != bytes.Count(rest, []byte("]"))) {
			continue // it is no simple value, or list of these, as which the field that was probably meant may not take it
		}
		is := string(scalar.Find(rest))
		takes := d.takes
		if d.Rule == schema.RuleWrongType && takes == "" {
			takes = map[bool]string{true: "number", false: "string"}[strings.HasPrefix(is, `"`)]
		}
		if other := retyped(takes, is); other != "" {
			d.is, d.meant = is, other
		}
		if is != "" && d.meant == "" && takes != "" && !fits(takes, is) && fits(takes, "["+is+"]") {
			d.is, d.meant = is, "["+is+"]"
		}
		if is != "" && d.meant == "" {
			*d = d.stands(is, strings.HasSuffix(d.Path, ".cue"))
		}
	}
	return out
}

// scalar is a label, or a value of one word, in quotes or not.
var scalar = lazyregexp.New(`^("([^"\\\n]|\\.)*"|'[^'\n]*'|[#A-Za-z0-9_.+-]+)`)

// reference is what is no value, but a name or a type.
var reference = lazyregexp.New(`^[#A-Za-z_][#A-Za-z0-9_.]*$`)

// retyped returns a number as text, or a text as the number that it is, if only that is what may be; else "".
func retyped(takes, written string) string {
	if takes == "" || written == "" {
		return ""
	}
	other := strconv.Quote(written)
	if u, err := strconv.Unquote(written); err == nil {
		other = u
	}
	number := strings.Trim(written, `"`)
	if _, err := strconv.ParseFloat(number, 64); err != nil || fits(takes, written) || !fits(takes, other) {
		return ""
	}
	return other
}

// fits reports whether an expression without references takes a value.
func fits(takes, value string) bool {
	v := cuecontext.New().CompileString("_value: (" + takes + ") & " + value + "\n")
	return v.Err() == nil && v.LookupPath(cue.MakePath(cue.Hid("_value", "_"))).Validate(cue.Concrete(true)) == nil
}

// listed is an expression that lists numbers.
var listed = lazyregexp.New(`^[*]?-?[0-9.]+( [|] [*]?-?[0-9.]+)+$`)

// nearestNumber returns the one of the numbers that may be that is nearest to what is written; "" if others may be, too.
func nearestNumber(takes, written string) (best string) {
	is, err := strconv.ParseFloat(strings.Trim(written, `"`), 64)
	if err != nil || !listed.MatchString(takes) {
		return ""
	}
	distance := math.Inf(1)
	for text := range strings.SplitSeq(strings.ReplaceAll(takes, "*", ""), " | ") {
		if n, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(n-is) < distance {
			best, distance = text, math.Abs(n-is)
		}
	}
	return best
}

// stands returns a mistake with what may stand in the place of what is written: a value that is expected, or the label
// that was probably meant. inCUE says of which language it is.
func (m mistake) stands(written string, inCUE bool) mistake {
	value, isDefault := m.about, false
	if inCUE && m.form != closedField && m.Rule != schema.RuleUnknownField && reference.MatchString(written) {
		return m // the value is written elsewhere
	}
	if m.form != closedField {
		value, isDefault = terms.Example(m.takes, strings.Trim(written, `"'`))
		value = cmp.Or(terms.NearDay(written), nearestNumber(m.takes, written), terms.NearText(m.takes, written, fits), value)
		if !inCUE && !json.Valid([]byte(value)) {
			value = terms.Number(value)
		}
	}
	if value != "" {
		word := m.Rule == schema.RuleInvalidValue && strings.HasPrefix(value, `"`) && !isDefault
		m.is, m.meant, m.chosen = written, value, word || value == "true" || value == "false"
	}
	return m
}

// mostImported bounds how many of the packages that a package imports are looked at for mistakes.
const mostImported = 4

// withImported returns mistakes of a package without those that are gone once mistakes in the packages that it imports
// are corrected, and with these, which are reported there, in their place.
func withImported(req request, strict *loaded, found []mistake, mayLook func() bool) []mistake {
	if !strict.built || !slices.ContainsFunc(found, func(d mistake) bool { return !strict.where.schema(d.Path) }) {
		return found
	}
	var theirs []mistake
	looked := 0
	for _, in := range instances(strict.inst)[1:] {
		dir := strings.Trim(in.Dir, "/")
		if dir == SchemaDir || looked == mostImported || len(in.Files) == 0 || !mayLook() {
			continue
		}
		if err := strict.context.BuildInstance(in).Validate(); err == nil {
			continue
		}
		looked++
		of := req
		of.Dir = dir
		wrong, _ := mistakesOf(of)
		theirs = append(theirs, wrong...)
	}
	if len(theirs) == 0 || !mayLook() {
		return found
	}
	t := try(req, theirs)
	t.found, t.put = found, make([]bool, len(found))
	kept := t.causes()
	if len(kept) == len(found) {
		return found
	}
	return append(kept, theirs...)
}

// unknownOnce returns mistakes without those of fields that a library passes on to a definition which has none of the name,
// where the package itself, or a file that it embeds, has the same one: that is said in the words of the other one.
func unknownOnce(l *loaded, found []mistake) (out []mistake) {
	said, gone := map[int]mistake{}, map[int]bool{}
	for n, d := range found {
		if d.Rule != schema.RuleUnknownField || l.where.mine(d.Path) || !l.where.computes(d.Position) {
			continue
		}
		i := slices.IndexFunc(found, func(o mistake) bool {
			return o.Rule == d.Rule && l.where.mine(o.Path) && lastOf(o.Field) == lastOf(d.Field) && objectOf(o.Field) == objectOf(d.Field)
		})
		if i >= 0 {
			said[i], gone[n] = d, true
		}
	}
	for n, d := range found {
		if other, ok := said[n]; ok && d.Expected == "" {
			d.Field, d.Message, d.Expected, d.Hint = other.Field, other.Message, other.Expected, other.Hint
		}
		if !gone[n] {
			out = append(out, d)
		}
	}
	return out
}

// sameAgain returns mistakes with those at the name of a value moved to where the package writes the value, and without
// conflicts of the same two values of what is only another name for a field.
func sameAgain(l *loaded, found []mistake) (out []mistake) {
	for _, d := range found {
		if d.operand && slices.ContainsFunc(found, func(o mistake) bool { return !o.operand && o.Rule == schema.RuleWrongType && o.Position == d.Position }) {
			continue // an operator does not take what has another type than is wanted
		}
		toLiteral(l, &d)
		toQuoted(l, &d)
		toReferred(l, &d)
		toFactor(l, &d)
		toWrittenText(l, &d)
		again := func(o mistake) bool {
			return d.Rule == schema.RuleConflict && o.Rule == d.Rule && d.Field != o.Field && lastOf(o.Field) == lastOf(d.Field) &&
				!(ofObject(d.Field) && ofObject(o.Field) && objectOf(d.Field) != objectOf(o.Field)) &&
				(o.Message == d.Message && d.about == "" || d.here != "" && o.here == d.there && o.there == d.here)
		}
		if i := slices.IndexFunc(out, again); i >= 0 {
			if d.Position != out[i].Position {
				at := d.Position
				at.Path = l.where.data.whole(at.Path)
				out[i].Hint += fmt.Sprintf("; the other one is at %s", at)
			}
			continue
		}
		out = append(out, d)
	}
	return out
}

// ofObject reports whether a data path is of an object.
func ofObject(field string) bool {
	kind, _, _ := strings.Cut(field, ".")
	return isKindName(kind)
}

// checksOnce returns mistakes without those of checks of an object that say what is said of what the object is made from.
func checksOnce(l *loaded, found []mistake) []mistake {
	return slices.DeleteFunc(slices.Clone(found), func(d mistake) bool {
		return d.Rule == schema.RuleCheck && l.where.computes(d.Position) && slices.ContainsFunc(found, func(o mistake) bool {
			return o.beside() && o.Rule == d.Rule && o.Hint == d.Hint && o.Message == d.Message && o.Field != d.Field
		})
	})
}

// computes reports whether what stands at a position is a label that is computed.
func (p *positions) computes(at schema.Position) bool {
	f, ok := p.index()[at]
	if !ok {
		return false
	}
	switch f.Label.(type) {
	case *ast.ParenExpr, *ast.Interpolation:
		return true
	}
	return false
}

// toLiteral moves a mistake of a text from a name that stands for it to where the package writes the text, if that is
// at one place.
func toLiteral(l *loaded, d *mistake) {
	text, err := strconv.Unquote(d.value)
	if err != nil {
		text = d.is
	}
	if said, err := strconv.Unquote(strings.TrimPrefix(d.Message, "is ")); err == nil && text == "" {
		text = said
	}
	if len(text) < 2 || d.Rule == schema.RuleConflict || d.Rule == schema.RuleCheck || !l.where.mine(d.Path) {
		return
	}
	_, inField := l.where.index()[d.Position]
	switch {
	case l.where.refersAt(d.Position):
		d.Position = cmp.Or(l.where.literal(strconv.Quote(text)), d.Position)
	case !inField && strings.HasSuffix(d.Path, ".cue"): // the variable of a comprehension
		d.Position = cmp.Or(l.where.literal(strconv.Quote(text)), l.where.labelNamed(text), d.Position)
	}
}

// toQuoted moves a mistake of a number that is compared with a number in quotes to that, if it is at one place.
func toQuoted(l *loaded, d *mistake) {
	other, number := d.there, d.value
	if !d.operand || retyped("number", other) == "" || retyped("string", number) == "" {
		return
	}
	if at := l.where.literal(other); at.Path != "" {
		d.Position, d.Message, d.Expected = at, "is the string "+other, "a number"
		d.Hint = "it is compared with " + number
	}
}

// toFactor moves a mistake of a text that is the product of a number and a text, which CUE repeats, to that text.
func toFactor(l *loaded, d *mistake) {
	if d.Rule != schema.RuleWrongType || !l.where.mine(d.Path) {
		return
	}
	parts := []cue.Value{l.where.value(l.labels(d.Field))}
	if op, args := parts[0].Expr(); op == cue.AndOp {
		parts = args
	}
	for _, v := range parts {
		op, args := v.Expr()
		if op != cue.MultiplyOp {
			continue
		}
		for _, factor := range args {
			text, err := factor.String()
			if err != nil {
				continue
			}
			d.value = strconv.Quote(text)
			d.Message, d.Expected, d.Hint = "is the string "+d.value, "a number", "it is multiplied: write it without quotes"
			for _, o := range trace.Origins(factor) {
				if at := valueAt(o.Value); l.where.mine(at.Path) {
					d.Position = at
				}
			}
			d.Position = cmp.Or(l.where.literal(d.value), d.Position)
		}
	}
}

// toReferred moves a mistake of a value from a reference to the value that it stands for, in the package or a file that it
// embeds, or else in the library that has the reference, if that is at one place.
func toReferred(l *loaded, d *mistake) {
	if d.Rule == schema.RuleConflict || d.Rule == schema.RuleCheck || l.where.schema(d.Path) || !l.where.refersAt(d.Position) {
		return
	}
	mine, places := l.where.mine(d.Path), map[schema.Position]bool{}
	is := func(text string) bool { return len(text) > 1 && strings.HasSuffix(" "+d.Message, " "+text) }
	for _, part := range trace.Parts(l.where.value(l.labels(d.Field))) {
		if at := valueAt(part); at.Path != "" && is(trace.Text(part)) && (!mine || l.where.mine(at.Path)) {
			places[at] = true
		}
	}
	if len(places) == 0 && !mine { // the data path leads through hidden fields of the library
		ast.Walk(l.where.fileOf(d.Position), func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && is(lit.Value) {
				places[position(lit.Pos())] = true
			}
			return true
		}, nil)
	}
	if len(places) == 1 {
		d.Position = slices.Collect(maps.Keys(places))[0]
	}
}

// toWrittenText moves a mistake of a text that a library does not take to where the package itself writes that text, if that
// is at one place, and the library does not write it.
func toWrittenText(l *loaded, d *mistake) {
	if d.Rule != schema.RuleOutOfRange && d.Rule != schema.RuleInvalidValue || l.where.mine(d.Path) || l.where.schema(d.Path) {
		return
	}
	text := d.value
	if _, err := strconv.Unquote(text); err != nil {
		text = strconv.Quote(d.is)
	}
	if said := strings.TrimPrefix(d.Message, "is "); d.is == "" && text == `""` {
		text = said
	}
	if len(text) < len(`"xy"`) {
		return
	}
	written := false // by the library, too: it may be that one
	ast.Walk(l.where.fileOf(d.Position), func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		written = written || ok && lit.Value == text
		return !written
	}, nil)
	if !written {
		d.Position = cmp.Or(l.where.literal(text), d.Position)
	}
}

// refersAt reports whether what stands at a position is a reference.
func (p *positions) refersAt(at schema.Position) (yes bool) {
	ast.Walk(p.fileOf(at), func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		if !ok || position(f.Value.Pos()) != at {
			return !yes
		}
		switch f.Value.(type) {
		case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr:
			yes = true
		}
		return !yes
	}, nil)
	return yes
}
