package compile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/walk"
	"github.com/musterhq/muster/schema/valid"
)

// mistake is a diagnostic in the making, with what is needed to find out which mistake
// follows from which.
type mistake struct {
	schema.Diagnostic
	form form
	// about is the import path of unusedImport and badImport, the name of
	// undefinedName, and the other data path of selfCycle.
	about string
	// alias is, of unusedImport, the name that the import has in its file, "" if it has that of the package.
	alias string
	// word is, of undefinedName, how many bytes of the line the text has that the name
	// begins, where that is text without quotes; else 0.
	word int
	// top is, of a parameter that nothing uses, the label of the field at the top that it is in.
	top string
	// repeated is, of a check that there is nothing twice, the text that is: what is made of both has conflicts.
	repeated string
	// undecided is set where CUE only says that something has no value yet.
	undecided bool
	// unnamed is set of a computed name that is not known.
	unnamed bool
	// follows is set where all that CUE says is that something it refers to has an error.
	follows bool
	// failure is what CUE says of a function that fails, for whatever reason; else "".
	failure string
	// value is what is given where something else is wanted, as CUE writes it; "" if that is not known.
	value string
	// meant is, of a text that is none of those that may be, the one that it is probably a misspelling of,
	// and is the text.
	is, meant string
	// takes is what may be in the place of a wrong value, as CUE writes it; "" if that is not known. chosen is set where
	// meant is one of several words of it.
	takes  string
	chosen bool
	// lacks is the name of what is looked up and is not there; "" of other mistakes.
	lacks string
	// refs are, of what is undecided, the last names of what it refers to.
	refs []string
	// ranges is, of a comprehension that goes through what is no list or struct, the last name of that.
	ranges string
	// operand is set of what a function or an operator says of what it gets.
	operand bool
	// looks are, of a check, the data paths that it refers to.
	looks []string
	// here and there are, of a conflict, the values at this place and at the other one.
	here, there string
	// from is where a value stands of which a mistake is moved to where it belongs.
	from schema.Position
	// moved is set of what a library constrains and nothing sets, as if a parameter that it is made from is wrong.
	moved bool
	// widened is set of what has no value where what constrains it was taken out.
	widened bool
}

// form is a form of mistake that explains others, or is explained by them.
type form int

const (
	plain            form = iota
	unusedImport          // an import that nothing uses
	badImport             // an import that cannot be resolved
	undefinedName         // a name that stands for nothing
	unusedName            // a let clause that nothing uses
	selfCycle             // a field that depends on itself
	missingField          // a required field that is not there
	closedField           // a field that a definition of the repository's own does not have
	wrongDefinition       // an object that is joined with the definition of another kind
	absentField           // a parameter that is not given
	absentDefinition      // a definition that is not there
	ofLibrary             // a mistake that a library has of its own
)

// nearer reports whether m is of the value that o is of, in a field that takes it from there:
// both are of one place and one object, and o lies deeper.
func (m mistake) nearer(o mistake) bool {
	return m.form == o.form && m.Position == o.Position && m.Position.Path != "" && depth(m.Field) < depth(o.Field) &&
		strings.ContainsAny(m.Field[:min(1, len(m.Field))], "_#") && objectOf(m.Field) == objectOf(o.Field)
}

// depth returns how deep a data path is, from 0 for a field at the top.
func depth(field string) int { return strings.Count(field, ".") + strings.Count(field, "[") }

// objectOf returns the first two labels of a data path.
func objectOf(field string) string {
	labels := pathLabel.FindAllString(field, 3)
	return strings.Join(labels[:min(2, len(labels))], ".")
}

// covers reports whether a says what b says.
func covers(a, b mistake) bool {
	if a.besides(b) {
		return false
	}
	if b.Field == "" || a.Field == "" {
		return a.Position == b.Position
	}
	return a.Position == b.Position || within(a.Field, b.Field) || within(b.Field, a.Field)
}

// besides reports whether a mistake is that of another check than o is, perhaps of the same value.
func (m mistake) besides(o mistake) bool {
	return m.Rule == schema.RuleCheck && o.Rule == schema.RuleCheck && m.Hint != o.Hint
}

// key separates mistakes of which only one is reported: those of one data path, but for checks, of which several
// may look at one value.
func (m mistake) key() string {
	if m.Rule == schema.RuleCheck {
		return m.Field + " " + m.Hint
	}
	return m.Field
}

// says reports whether m is of a part of what o is of, or of the value itself.
func (m mistake) says(o mistake) bool {
	return !m.besides(o) && (m.Field != o.Field && within(m.Field, o.Field) || m.nearer(o))
}

// repeats reports whether m is of the data that o is of, under another name.
func (m mistake) repeats(o mistake) bool {
	return strings.HasPrefix(m.Field, "_") && o.Field != "" && strings.HasSuffix(m.Field, "."+o.Field)
}

// parent returns the data path of what holds a field.
func parent(field string) string { return field[:max(0, strings.LastIndexByte(field, '.'))] }

// overtaken reports whether what was found in the data of lax definitions is said by the strict
// ones: it was moved to a parameter in which these find a mistake, or has no value because of one.
func overtaken(d mistake, strictly []mistake) bool {
	return slices.ContainsFunc(strictly, func(s mistake) bool {
		if d.moved && s.ofParameter() && objectOf(s.Field) == objectOf(d.Field) {
			return true
		}
		return d.Rule == schema.RuleNotSet &&
			(d.widened && s.form == closedField && s.ofParameter() || s.Field == d.Field && s.Rule == schema.RuleUndefined)
	})
}

// betterThan reports whether what the strict definitions say is the better way to say d, of lax ones: d
// is the same of a field whose constraint was taken out, or what CUE says of a function that got what
// is wrong.
func betterThan(strict, d mistake) bool {
	if strict.Position == d.Position && strict.Field != d.Field && strict.ofParameter() && (!d.ofParameter() || d.operand && !strict.operand) {
		return true // what takes the value from the parameter
	}
	if d.unnamed && strict.form == absentField {
		return true
	}
	return strict.Field == d.Field && (strict.form == absentField && d.form == absentField || strict.Rule == d.Rule && strict.Position == d.Position) ||
		d.Rule == schema.RuleSyntax && strict.Rule != schema.RuleSyntax && strict.Position == d.Position
}

// ofParameter reports whether a mistake is in what an object, or a library, is given.
func (m mistake) ofParameter() bool {
	return strings.HasPrefix(m.Field, "_") || strings.Contains(m.Field, "#")
}

// beside reports whether a mistake is in what objects may be made from: a hidden field or a definition at the top.
func (m mistake) beside() bool {
	return strings.HasPrefix(m.Field, "_") || strings.HasPrefix(m.Field, "#")
}

// sameTail reports whether two mistakes in one struct are of fields whose last two names are the same, as of what a let
// clause of a library stands for.
func (m mistake) sameTail(o mistake) bool {
	tail := func(field string) string { return lastOf(parent(field)) + "." + lastOf(field) }
	return m.Field != o.Field && m.ofParameter() && tail(m.Field) == tail(o.Field) && objectOf(m.Field) == objectOf(o.Field)
}

// lacksOne reports whether a mistake is a field that a struct has under a wrong name, and one of some others is what the
// struct has not.
func (m mistake) lacksOne(names []string) bool {
	return m.form == closedField && slices.ContainsFunc(strings.Split(strings.TrimPrefix(m.Expected, "one of "), ", "), func(name string) bool {
		return slices.Contains(names, name)
	})
}

// hides reports whether a mistake says what another one only follows from: what is not given is given under another name,
// or elsewhere, or a check is said of the object that it is in.
func (m mistake) hides(d mistake) bool {
	switch {
	case d.form == absentField && d.operand:
		return !m.operand && (lastOf(m.Field) == d.about || m.about == d.about)
	case d.Rule == schema.RuleNotSet && d.undecided:
		return m.lacksOne(d.refs)
	case d.Rule == schema.RuleUndefined && d.form == plain && m.form == absentField: // CUE gives up all that is made from it
		labels := func(field string) []string { return pathLabel.FindAllString(strings.ReplaceAll(field, `"`, ""), -1) }
		from := labels(m.Field)
		return d.Path != m.Path && len(from) > 1 && nearness(labels(d.Field), from) > 0
	}
	return d.Rule != schema.RuleCheck && m.Rule == schema.RuleCheck && m.Message == d.Message
}

// onTheWay reports whether a mistake is of a value that a template computes on its way: it has no data path in the
// package, is what an operator gets, or of a function that cannot make anything of it.
func (m mistake) onTheWay() bool {
	return strings.HasPrefix(m.Field, "#") && depth(m.Field) == 0 || m.operand || m.failure != ""
}

// ofType reports whether a mistake is a value that is none of those, or not of the type, that may be.
func (m mistake) ofType() bool {
	return m.Rule == schema.RuleWrongType || m.Rule == schema.RuleInvalidValue
}

// nearness says how likely it is that what is at a data path is made from what is at another one: 2 if
// both are in one object, 1 if the object has a name that is made with a label of the other, else 0.
func nearness(of, from []string) int {
	switch {
	case len(of) < 2:
		return 0
	case of[0] == from[0] && of[1] == from[1]:
		return 2
	case slices.ContainsFunc(from[1:len(from)-1], func(label string) bool { return strings.Contains("-"+of[1]+"-", "-"+label+"-") }):
		return 1
	}
	return 0
}

// refers reports whether a mistake is that of another field at the top, and shows where that is referred to by a name.
func refers(d, to mistake, name string) bool {
	return name != "" && d.Message == to.Message && d.Expected == to.Expected && d.Position != to.Position &&
		within(to.Field, name) && strings.HasSuffix(d.Field, to.Field[len(name):])
}

// givesRequired reports whether a struct gives a value that its rule requires, or a process, which each task has; left is
// how much deeper is looked.
func givesRequired(e ast.Expr, rule *valid.Rule, left int) bool {
	if left < 0 {
		return true
	}
	for i := range rule.Fields {
		field := &rule.Fields[i]
		within := field.Rule != nil && len(field.Rule.Fields) > 0
		for _, f := range walk.FindIn(e, []string{field.Name}) {
			switch {
			case !within && field.Required, field.Name == "process", field.Name == "container":
				return true
			case within && field.Required && givesRequired(f.Value, field.Rule, left-1):
				return true
			}
		}
	}
	return false
}

// isMissing reports whether a mistake is of a field of an object that is not there.
func isMissing(m mistake) bool { return m.form == missingField }

// tidy sorts mistakes and folds those that say the same of the same place:
// a mistake within a comprehension shows in every object that it makes.
func tidy(found []mistake) []schema.Diagnostic {
	// weak is of what is made from a value at a place, where something is wrong with the value itself.
	weak := func(d mistake) bool { return d.Rule == schema.RuleInvalidName || d.failure != "" }
	slices.SortStableFunc(found, func(a, b mistake) int {
		if a.Position == b.Position && weak(a) != weak(b) {
			return schema.CompareBool(weak(a), weak(b))
		}
		return a.Compare(b.Diagnostic)
	})
	var kept []mistake
	for _, d := range found {
		same := func(o mistake) bool {
			policy := d.Rule == schema.RulePolicy && o.Rule == d.Rule && o.Hint == d.Hint && d.Hint != "" // whose message may name the object
			return o.Position == d.Position && (o.Message == d.Message && o.Expected == d.Expected || weak(d) || policy)
		}
		circle := func(o mistake) bool { return d.form == selfCycle && o.form == selfCycle && d.about == o.Field }
		if len(kept) < maxDiagnostics && !slices.ContainsFunc(kept, same) && !slices.ContainsFunc(kept, circle) {
			kept = append(kept, d)
		}
	}
	out := make([]schema.Diagnostic, len(kept))
	for i := range kept {
		out[i] = kept[i].Diagnostic
	}
	return out
}

// isCheckOf reports whether a mistake is of the value that a check looks at, where d is of where a library has the check.
func (m mistake) isCheckOf(d mistake) bool {
	return m.Rule == schema.RuleCheck && d.Rule != schema.RuleCheck && m.Message == d.Message && pathLabel.FindString(m.Field) == pathLabel.FindString(d.Field)
}

// joined returns mistakes with those of CUE, of a lax and a strict evaluation, that they do not cover.
func joined(mine, lax, strict []mistake) []mistake {
	for _, d := range lax {
		if slices.ContainsFunc(strict, func(m mistake) bool { return m.isCheckOf(d) }) {
			continue
		}
		if !slices.ContainsFunc(mine, func(m mistake) bool {
			return (m.Field == d.Field || m.Position == d.Position) && !m.besides(d)
		}) {
			mine = append(mine, d)
		}
	}
	for _, d := range strict {
		if d.form == unusedImport {
			continue // among the certain, or explained by one of them
		}
		if !slices.ContainsFunc(mine, func(m mistake) bool { return covers(m, d) }) {
			mine = append(mine, d)
		}
	}
	return mine
}

// withoutUnset returns mistakes without those which say that a library does not set something in an
// object of which a parameter is missing, and without what shows in a library since the package gives it something
// wrong; mine reports whether a file is of the package.
func withoutUnset(found []mistake, mine func(path string) bool) []mistake {
	all := slices.Clone(found)
	gives := slices.ContainsFunc(all, func(m mistake) bool {
		return mine(m.Path) && (m.ofType() || m.form == closedField)
	})
	return slices.DeleteFunc(found, func(d mistake) bool {
		given := func(m mistake) bool { return mine(m.Path) && m.ofType() && d.sameTail(m) }
		if gives && !mine(d.Path) && d.form != ofLibrary && (d.onTheWay() || slices.ContainsFunc(all, given)) {
			return true
		}
		return d.Rule == schema.RuleNotSet && !mine(d.Path) && slices.ContainsFunc(all, func(m mistake) bool {
			return m.form == plain && strings.HasPrefix(m.about, "#") && parent(m.Field) != "" && within(d.Field, parent(m.Field))
		})
	})
}

// chooses returns the name of a field that is set to none of the values that it may have, or is misspelled: then no
// condition on it holds that was meant to; "" of other mistakes.
func (m mistake) chooses() string {
	switch m.Rule {
	case schema.RuleInvalidValue:
		return lastOf(m.Field)
	case schema.RuleUnknownField:
		return m.about
	}
	return ""
}

// withLacking adds to mistakes the parameters that are not given, without those that are given under
// another name.
func withLacking(out, lack []mistake) []mistake {
	known := slices.Clone(out)
	for _, m := range lack {
		misspelled := func(u mistake) bool {
			return m.about != "" && (u.about == m.about || u.form == closedField && m.operand && lastOf(u.Field) == m.about) || u.form == closedField && parent(u.Field) == parent(m.Field)
		}
		if !slices.ContainsFunc(known, misspelled) && !givenAs(out, m, lack) {
			out = append(out, m)
		}
	}
	return out
}

// givenAs reports whether a parameter of an object, which is not given, is given under a name that is
// like it, without the #, or, if no other one lacks, under any other, and says so there.
func givenAs(found []mistake, m mistake, lack []mistake) bool {
	name := lastOf(m.Field)
	if !strings.HasPrefix(name, "#") {
		return false
	}
	alone := !slices.ContainsFunc(lack, func(o mistake) bool { return o.Field != m.Field && parent(o.Field) == parent(m.Field) })
	i := slices.IndexFunc(found, func(u mistake) bool {
		other := lastOf(u.Field)
		return u.Rule == schema.RuleUnknownField && parent(u.Field) == parent(m.Field) &&
			("#"+other == name || u.about == name || u.about == "" && strings.HasPrefix(other, "#") && (alone || valid.Nearest(other, []string{name}) != ""))
	})
	if i >= 0 {
		found[i].Hint = fmt.Sprintf("did you mean %s?", name)
	}
	return i >= 0
}

// folded returns mistakes with the fields of one struct that its definition has not, and that are
// no misspelled ones, as one.
func folded(found []mistake) (out []mistake) {
	first := map[string]bool{}
	for _, d := range found {
		if d.form != closedField || d.about != "" {
			out = append(out, d)
			continue
		}
		var same []string
		for _, o := range found {
			if o.form == closedField && o.about == "" && parent(o.Field) == parent(d.Field) {
				same = append(same, strconv.Quote(lastOf(o.Field)))
			}
		}
		in := parent(d.Field)
		if first[in] && len(same) > 1 {
			continue
		}
		first[in] = true
		if len(same) > 1 {
			slices.Sort(same)
			d.Field, d.Message = in, fmt.Sprintf("the fields %s are not in the definition", strings.Join(same, ", "))
		}
		out = append(out, d)
	}
	return out
}

// notGivenOnce returns parameters that are not given, sorted by field, each once: what several
// objects that are made alike do not have is reported of the first. whole returns the path of a file by
// the name that its positions have.
func notGivenOnce(missing map[string]mistake, whole func(string) string) (out []mistake) {
	first := map[string]int{} // index in out
	others := map[int][]schema.Position{}
	for _, field := range slices.Sorted(maps.Keys(missing)) {
		m := missing[field]
		key := m.about + " " + m.Hint
		i, ok := first[key]
		if !ok || m.Hint == "" || m.Rule == schema.RuleNotSet {
			first[key] = len(out)
			out = append(out, m)
			continue
		}
		if m.Position != out[i].Position && !slices.Contains(others[i], m.Position) {
			others[i] = append(others[i], m.Position)
		}
	}
	for i, at := range others {
		at[0].Path = whole(at[0].Path)
		also := "at " + at[0].String()
		if len(at) > 1 {
			also = fmt.Sprintf("in %d other places", len(at))
		}
		out[i].Message += ", here and " + also
	}
	return out
}

// lastOf returns the last name of a data path.
func lastOf(field string) string {
	return strings.Trim(field[strings.LastIndexByte(field, '.')+1:], `"`)
}

// formerNames warns of fields that what is below a top level field of files names by a former name.
func formerNames(files []*ast.File, top string) (out []mistake) {
	note := func(name ast.Label) {
		text, _, err := ast.LabelName(name)
		if f, ok := valid.Formers()[text]; err == nil && ok {
			out = append(out, mistake{Diagnostic: schema.Diagnostic{
				Severity: schema.Warning, Rule: schema.RuleDeprecated, Position: position(name.Pos()), Message: f.Replaced(), Hint: valid.RewriteHint,
			}})
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if field, ok := d.(*ast.Field); ok && lax.Label(field) == top {
				ast.Walk(d, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.Field:
						note(n.Label)
					case *ast.SelectorExpr:
						note(n.Sel)
					}
					return true
				}, nil)
			}
		}
	}
	return out
}

// importOf returns the package of the repository that an expression is the name of, nil if
// it is something else.
func importOf(e ast.Expr, byPath map[string]*build.Instance) *build.Instance {
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	spec, ok := id.Node.(*ast.ImportSpec)
	if !ok {
		return nil
	}
	target, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return nil
	}
	return byPath[target]
}

// hasTop reports whether a package may have a field of a name: one that is computed may be
// any.
func hasTop(in *build.Instance, name string) bool {
	for _, f := range in.Files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.Field:
				if label := lax.Label(d); label == name || label == "" {
					return true
				}
			case *ast.EmbedDecl, *ast.Comprehension:
				return true
			}
		}
	}
	return len(in.Files) == 0 // of the standard library
}

// isData reports whether a value is written out, and so is no constraint.
func isData(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit, *ast.ListLit, *ast.StructLit, *ast.Interpolation:
		return true
	case *ast.UnaryExpr:
		_, number := e.X.(*ast.BasicLit)
		return number && (e.Op == token.SUB || e.Op == token.ADD)
	}
	return false
}

// hidden reports whether a field is not data: hidden, or a definition.
func hidden(f *ast.Field) bool {
	id, ok := f.Label.(*ast.Ident)
	return ok && (strings.HasPrefix(id.Name, "_") || strings.HasPrefix(id.Name, "#"))
}

// chained returns the field that is the value of f without braces, on a later
// line.
func chained(f *ast.Field) *ast.Field {
	s, ok := f.Value.(*ast.StructLit)
	if !ok || s.Lbrace.IsValid() || len(s.Elts) != 1 {
		return nil
	}
	inner, ok := s.Elts[0].(*ast.Field)
	if !ok || inner.Label.Pos().Line() == f.Label.Pos().Line() {
		return nil
	}
	return inner
}

// last returns the innermost field of a chain over several lines.
func last(f *ast.Field) *ast.Field {
	for inner := chained(f); inner != nil; inner = chained(f) {
		f = inner
	}
	return f
}

// namedIn returns where a struct sets a field to one of some names, or else where it begins.
func namedIn(n ast.Node, names []string) schema.Position {
	s, ok := n.(*ast.StructLit)
	if !ok {
		return position(n.Pos())
	}
	found := position(n.Pos())
	ast.Walk(s, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok {
			return true
		}
		if text, err := strconv.Unquote(lit.Value); err == nil && slices.Contains(names, text) {
			found = position(lit.Pos())
		}
		return true
	}, nil)
	return found
}

// madeText returns the text that a mistake is of, "" if it is none, or is written where the mistake is: text is what is at its
// data path.
func (m mistake) madeText(text string, written func(text string) bool) string {
	switch given, err := strconv.Unquote(m.value); {
	case m.failure != "":
		return m.failure
	case err == nil:
		text = given
	case m.value != "" || m.ofParameter():
		return ""
	}
	if written(text) {
		return ""
	}
	return text
}
