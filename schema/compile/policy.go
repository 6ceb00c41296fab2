package compile

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/policytext"
	"github.com/musterhq/muster/schema/compile/stage"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

// A company says in CUE what it demands of objects beyond the schema: in the field _policy
// of the root package, or of one in cells/, by name
//
//	_policy: "no-latest": {
//		paths: ["teams"]                                // of directories; without: all
//		except: ["teams/lab"]                           // of these directories not
//		severity: "error"                               // or "warning"
//		message: "take an image by its digest"
//		job: task: container?: image: !~":latest$"      // joined with each job
//	}
//
// It is evaluated with each object of the packages that it is for, in the child that has
// the package, after the object is right by itself.

// policyFields are the fields of a policy beside the kinds of objects.
var policyFields = []string{"paths", "except", "severity", "message"}

// policyLabel finds what may be the label of policies, in a file that is not parsed: perhaps
// also in a text, or deeper.
var policyLabel = lazyregexp.New(`(^|[\n{,=])[ \t\r]*_policy[ \t\r]*[:?!~]`)

// findPolicies reports whether a file may have policies, and where they begin: also one
// that cannot be parsed, which must not be taken for one without.
func findPolicies(data []byte) *schema.Position {
	if !strings.Contains(string(data), policyField) {
		return nil
	}
	if len(data) > maxParsed {
		at := policyLabel.FindIndex(data)
		if at == nil {
			return nil
		}
		before := data[:at[1]]
		line := bytes.LastIndexByte(before, '\n') + 1
		return &schema.Position{Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + bytes.LastIndex(before[line:], []byte(policyField))}
	}
	f, err := parser.ParseFile("-", data)
	if err != nil {
		return &schema.Position{Line: 1, Column: 1}
	}
	var found *schema.Position
	for _, d := range f.Decls {
		ast.Walk(d, func(n ast.Node) bool { // also into what is embedded, such as if … {_policy: …}
			field, ok := n.(*ast.Field)
			if ok && found == nil && lax.Label(field) == policyField {
				found = &schema.Position{Line: field.Pos().Line(), Column: field.Pos().Column()}
			}
			return !ok
		}, nil)
	}
	return found
}

// policy is one policy, from the package that declares it.
type policy struct {
	name          string
	paths, except []string
	severity      schema.Severity
	value         cue.Value
	at            schema.Position
	from          *loaded
	// wrong is what is wrong with what it demands: it holds for nothing then.
	wrong []mistake
	empty map[schema.Kind][][]string // see maps
}

// applies reports whether a policy is for objects of a directory.
func (p *policy) applies(dir string) bool {
	covers := func(path string) bool { return below(dir, path) }
	return slices.ContainsFunc(p.paths, covers) && !slices.ContainsFunc(p.except, covers)
}

// policies are those of a request, and what is wrong with them.
type policies struct {
	all   []*policy
	paths []policyPath // that those of the request's own package name
	own   int          // how many these are
	diags []schema.Diagnostic
	// warnings are of what the request's own policies say.
	warnings []mistake
}

// loadPolicies evaluates the packages with policies. strict is that of the request.
func loadPolicies(req request, strict *loaded) *policies {
	ps := &policies{}
	for _, dir := range req.Policies {
		l := strict
		if dir != req.Dir {
			other := req
			other.Dir = dir
			l = loadPackage(other, dir, nil)
			if len(l.errs) > 0 {
				ps.diags = append(ps.diags, tidy(mistakes(other, l))...)
				continue
			}
		}
		var found []mistake
		err := eachHidden(l, policyField, func(name string, v cue.Value) {
			r := &policyReader{policy: &policy{name: name, paths: []string{"."}, severity: schema.Error, value: v, at: l.where.of([]string{policyField, name}, true), from: l}}
			r.read()
			if len(r.diags) == 0 {
				r.wrong = slices.Concat(r.demands(), r.strangers(), r.idle())
			}
			if dir == req.Dir {
				found = append(found, ps.take(r)...)
			}
			found = append(found, r.diags...)
			ps.all = append(ps.all, r.policy)
		})
		if dir == req.Dir {
			ps.warnings = append(ps.warnings, formerNames(l.where.files, policyField)...)
		}
		if err != nil {
			found = append(found, mistake{Diagnostic: schema.Diagnostic{
				Severity: schema.Error, Rule: schema.RulePolicy, Position: l.where.of([]string{policyField}, false), Field: policyField,
				Message: "is not a struct", Expected: "policies by name: NAME: {…}",
			}})
		}
		ps.diags = append(ps.diags, tidy(found)...)
	}
	return ps
}

// take counts a policy that the request's own package has, and returns what is wrong with what it demands.
func (ps *policies) take(r *policyReader) (found []mistake) {
	ps.paths, ps.own = append(ps.paths, r.named...), ps.own+1
	for _, m := range r.wrong {
		if m.Severity == schema.Warning {
			ps.warnings = append(ps.warnings, m)
		} else {
			found = append(found, m)
		}
	}
	return found
}

// eachHidden calls f for each field of a hidden top-level field of a package. It errs if that
// is there and no struct.
func eachHidden(l *loaded, hidden string, f func(name string, v cue.Value)) error {
	it, err := l.value.Fields(cue.Hidden(true))
	if err != nil {
		return nil //nolint:nilerr // the package has no fields
	}
	for it.Next() {
		if it.Selector().String() != hidden {
			continue
		}
		fields, err := it.Value().Fields()
		if err != nil {
			return err
		}
		for fields.Next() {
			if name, ok := label(fields); ok {
				f(name, fields.Value())
			}
		}
	}
	return nil
}

// policyReader reads a policy.
type policyReader struct {
	*policy
	named []policyPath
	diags []mistake
}

// add says what is wrong with a field of the policy.
func (r *policyReader) add(field, message, expected, hint string) {
	at := []string{policyField, r.name}
	pos := r.at
	if field != "" {
		at = append(at, field)
		if f := r.from.where.written(at); f != nil {
			pos = edge(f, !slices.Contains(policyFields, field))
		}
	}
	r.diags = append(r.diags, mistake{Diagnostic: schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RulePolicy, Position: pos, Field: fieldPath(at), Message: message, Expected: expected, Hint: hint,
	}})
}

func (r *policyReader) read() {
	fields, err := r.value.Fields()
	if err != nil {
		r.add("", "is not a struct", "a struct with message and the kinds of objects that it is for", "")
		return
	}
	var kinds int
	known := slices.Clone(policyFields)
	for _, k := range schema.Kinds() {
		known = append(known, string(k))
	}
	for fields.Next() {
		name, ok := label(fields)
		switch {
		case !ok:
		case !slices.Contains(known, name):
			hint := ""
			if near := valid.Nearest(name, known); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			r.add(name, fmt.Sprintf("unknown field %q of a policy", name), "one of "+strings.Join(known, ", "), hint)
		case isKindName(name):
			kinds++
		}
	}
	if kinds == 0 && len(r.diags) == 0 {
		r.add("", "the policy is for no kind of object", "a field such as job, with what must hold of each job", "")
	}
	// Of a message that refers to the object it is not known yet what it is.
	m := r.value.LookupPath(cue.ParsePath("message"))
	if text, err := m.String(); !m.Exists() || m.IncompleteKind()&^cue.StringKind != 0 || err == nil && text == "" {
		r.add("message", "the policy has no message", "a string: what whoever breaks the policy has to do", "")
	}
	if v := r.value.LookupPath(cue.ParsePath("severity")); v.Exists() {
		word, _ := v.String()
		if r.severity = schema.Severity(word); r.severity != schema.Error && r.severity != schema.Warning {
			r.add("severity", "is not a severity", `"error" or "warning"`, "")
		}
	}
	if list := r.value.LookupPath(cue.ParsePath("paths")); list.Exists() {
		r.paths = r.directories("paths", list)
	}
	r.except = r.directories("except", r.value.LookupPath(cue.ParsePath("except")))
}

func isKindName(name string) bool { return slices.Contains(schema.Kinds(), schema.Kind(name)) }

// directories reads a list of paths of directories.
func (r *policyReader) directories(field string, v cue.Value) (out []string) {
	if !v.Exists() {
		return nil
	}
	v, _ = v.Default()
	it, err := v.List()
	for err == nil && it.Next() {
		var s string
		if s, err = it.Value().String(); err == nil {
			out = append(out, s)
			r.named = append(r.named, policyPath{Path: s, At: valueAt(it.Value())})
		}
	}
	if err != nil {
		r.add(field, "is not a list of directories", `paths from the root of the repository, such as ["teams/web"]`, "")
	}
	return out
}

// apply checks the objects of a package, and returns what the policies say of them.
func (ps *policies) apply(c *collection) (out []mistake) {
	ours := slices.DeleteFunc(slices.Clone(ps.all), func(p *policy) bool { return !p.applies(c.from.dir) })
	for _, s := range []stage.Stage{stage.Policies, stage.Heavy} {
		c.from.req.stages.Enter(s)
		out = ps.with(c, slices.DeleteFunc(slices.Clone(ours), func(p *policy) bool { return slices.Contains(c.from.req.Heavy, p.at) != (s == stage.Heavy) }), out)
	}
	c.from.req.stages.Enter(stage.Package)
	return out
}

// with adds to out what policies that are for the objects of a package say of them.
func (ps *policies) with(c *collection, ours []*policy, out []mistake) []mistake {
	if len(ours) == 0 {
		return out
	}
	context := cuecontext.New()
	for i := range c.objects {
		o := &c.objects[i]
		joined := policytext.NewObject(context, o.Kind, valid.WithFormer(o.Kind, o.Data))
		for _, p := range ours {
			if len(out) >= maxFound {
				return out
			}
			if !p.value.LookupPath(cue.ParsePath(string(o.Kind))).Exists() {
				continue
			}
			c.from.req.stages.At(stage.Policy{Position: p.at, Field: fieldPath([]string{policyField, p.name}), Object: fieldPath([]string{string(o.Kind), o.Name})})
			if len(p.wrong) > 0 {
				out = append(out, slices.DeleteFunc(slices.Clone(p.wrong), func(m mistake) bool { return m.Severity != schema.Error })...)
				continue
			}
			if m, ok := p.check(c, o, joined); ok {
				out = append(out, m)
			}
		}
	}
	return out
}

// ofPolicy finds errors that a policy itself is the reason of: it asks for what an object may
// lack, or compares what cannot be compared.
var ofPolicy = lazyregexp.New(`undefined field|index out of range|non-concrete|concrete value|not allowed|invalid operand|cannot |division`)

// texts are what a message quotes, of the object or the policy: to its end if that is cut off.
var texts = lazyregexp.New(`"([^"\\]|\\.)*("|$)`)

// isUnfit reports whether an error says that a policy cannot be evaluated: not if its own
// call of error is the reason, which may use the same words.
func (p *policy) isUnfit(e errors.Error) bool {
	check, ok := terms.CheckAt(p.from.where.fileAt(e.Position()), e.Position())
	return !(ok && check.Holds == "") && ofPolicy.MatchString(texts.ReplaceAllString(errorText(e), ""))
}

// broken says which value of an object breaks a policy, or that the policy cannot be
// evaluated for it.
func (p *policy) broken(c *collection, o *object, joined cue.Value, errs []errors.Error) mistake {
	top := []string{string(o.Kind), o.Name}
	if m, ok := p.impossible(o.Kind, errs); ok {
		return m
	}
	if m, ok := p.mistyped(o.Kind, errs); ok {
		return m
	}
	at := slices.IndexFunc(errs, func(e errors.Error) bool { return !p.isUnfit(e) })
	if at < 0 {
		return p.unfit(fieldPath(top), errs[0])
	}
	e := errs[at]
	m := p.breach(top)
	var wrong error
	if check, ok := terms.CheckAt(p.from.where.fileAt(e.Position()), e.Position()); ok && check.Holds == "" {
		m.Message = errorText(e)
	} else if m.Message, wrong = p.message(joined); wrong != nil {
		return p.unfit(fieldPath(top), errors.Errors(wrong)[0])
	}
	if slices.Equal(p.below(e), []string{priorityField}) {
		m.Hint = priorityText(o) + m.Hint
	}
	p.place(&m, c, top, p.below(e), append([]token.Pos{e.Position()}, errors.Positions(e)...)...)
	return m
}

// breach returns what is said of an object at the path top that breaks a policy, without the message.
func (p *policy) breach(top []string) mistake {
	return mistake{Diagnostic: schema.Diagnostic{
		Severity: p.severity, Rule: schema.RulePolicy, Field: fieldPath(top), Hint: fmt.Sprintf("policy %s is at %s", p.name, p.at),
	}}
}

// message returns the message of a policy that is joined with an object; it errs if that refers to what the
// object lacks.
func (p *policy) message(joined cue.Value) (string, error) {
	return joined.LookupPath(cue.ParsePath("message")).String()
}

// below returns the path of an error within the object that the policy is joined with.
func (p *policy) below(e errors.Error) []string {
	path := unquoted(e.Path())
	if n := slices.Index(path, p.name); n >= 0 && len(path) > n+1 {
		return path[n+2:]
	}
	return path
}

// unfit says that a policy cannot be evaluated for an object: at the policy, and in the
// same words for each object.
func (p *policy) unfit(object string, e errors.Error) mistake {
	m := mistake{Diagnostic: schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RulePolicy, Position: p.at, Field: fieldPath([]string{policyField, p.name}),
		Hint: fmt.Sprintf("seen with %s; of a field that may be missing write NAME?: …, or if job.NAME != _|_ {…}", object),
	}}
	why := errorText(e)
	if within := nested.FindStringSubmatch(why); within != nil {
		why = within[1]
	}
	path := unquoted(e.Path())
	at := slices.Index(path, p.name)
	switch name := undefined.FindStringSubmatch(why); {
	case name != nil:
		what := "it"
		if at >= 0 && len(path) > at+1 && path[at+1] == "message" {
			what = "the message"
		}
		kind, _, _ := strings.Cut(object, ".")
		why = fmt.Sprintf("%s uses %s, which not every %s has", what, p.selected(strings.Trim(name[1], `"`), e), kind)
		m.Hint = fmt.Sprintf("%s does not have it; of a field that may be missing write NAME?: …, or if job.NAME != _|_ {…}", object)
	case strings.Contains(why, "not allowed"):
		m.Hint = fmt.Sprintf("seen with %s; write ... into each struct of the definition that the policy is made from", object)
		why = "it allows fewer fields than there are"
		if at >= 0 && len(path) > at+2 {
			why = fmt.Sprintf("it is made from a definition that does not allow the field %s", fieldPath(path[at+1:]))
		}
	default:
		said := mistake{Diagnostic: schema.Diagnostic{Rule: schema.RulePolicy, Message: why, Position: position(e.Position())}}
		explain(p.from, &said, nil)
		why = said.Message
	}
	m.Message = "the policy cannot be evaluated: " + why
	if pos := position(e.Position()); pos.Path != "" && p.from.where.mine(pos.Path) {
		m.Position = pos
	}
	return m
}

// selected returns how a policy names the field that an object lacks, such as job.note: as it is written at
// the position of an error, else anywhere in the policy, else by its name alone.
func (p *policy) selected(name string, e errors.Error) string {
	f := p.from.where.written([]string{policyField, p.name})
	if f == nil {
		return name
	}
	at, found := position(e.Position()), name
	ast.Walk(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		label, _, err := ast.LabelName(s.Sel)
		if here := position(s.Sel.Pos()) == at || position(s.Pos()) == at; err == nil && label == name && (here || found == name) {
			found = terms.Text(s)
		}
		return true
	}, nil)
	return found
}

// place says which value of an object at the path top breaks a policy, and where the package gives it; below is
// its path in the object, and said are the places of what CUE says of it.
func (p *policy) place(m *mistake, c *collection, top, below []string, said ...token.Pos) {
	where := c.from.where
	full := slices.Concat(top, below)
	if n := slices.IndexFunc(full, func(s string) bool { return strings.HasPrefix(s, "_") }); n >= len(top) { // a check
		full = full[:n]
		check, _ := p.from.checkAt(said)
		if looked, pos, ok := where.gives(looking(c.from, p.from, full, check).Paths()); ok {
			m.Field, m.Position = fieldPath(looked), pos
			return
		}
	}
	m.Field, m.Position = fieldPath(full), where.of(full, false)
	if where.mine(m.Path) {
		return
	}
	if pos, ok := where.given(where.value(full)); ok {
		m.Position = pos
		return
	}
	if home := where.enclosing(append(slices.Clone(full), "")); where.mine(home.Path) {
		m.Hint = fmt.Sprintf("the value is from %s; %s", m.Position, m.Hint)
		m.Position = home
	}
}

// places are positions in files.
type places map[schema.Position]bool

// has reports whether CUE's error is of one of several places, among others.
func (p places) has(e errors.Error) bool {
	return len(p) > 0 && slices.ContainsFunc(errors.Positions(e), func(at token.Pos) bool { return p[position(at)] })
}

// without returns errors without those of several places, and without what CUE says of alternatives because of these.
func (p places) without(errs []errors.Error) []errors.Error {
	if len(p) == 0 {
		return errs
	}
	paths := map[string]bool{}
	for _, e := range errs {
		if p.has(e) {
			paths[fieldPath(e.Path())] = true
		}
	}
	return slices.DeleteFunc(errs, func(e errors.Error) bool {
		return p.has(e) || paths[fieldPath(e.Path())] && emptyDisjunction.MatchString(errorText(e))
	})
}

// addAround adds all that the top-level field of a position has: it lacks a name, so what it has is not known.
func (p places) addAround(files []*ast.File, at token.Pos) {
	for _, f := range files {
		for _, d := range f.Decls {
			if d.Pos().Filename() != at.Filename() || at.Offset() < d.Pos().Offset() || at.Offset() > d.End().Offset() {
				continue
			}
			ast.Walk(d, func(n ast.Node) bool {
				p[position(n.Pos())] = true
				return true
			}, nil)
		}
	}
}

// withoutFollowing takes from the errors of a package those that follow from what is wrong with a library by itself,
// such as a default of another type than the schema wants, and returns what the package waits for then.
func withoutFollowing(l *loaded) (theirs []mistake) {
	if !l.built {
		return nil
	}
	for _, in := range slices.Backward(instances(l.inst)[1:]) { // what others import first
		dir := strings.TrimPrefix(in.Dir, "/")
		if lax.IsDir(dir) || inPkg(dir) || !concerns(l, dir) {
			continue
		}
		faults := places{}
		for _, e := range errors.Errors(l.context.BuildInstance(in).Validate()) {
			if ofTemplate(e) {
				continue
			}
			for _, at := range errors.Positions(e) {
				if pos := position(at); path.Dir(pos.Path) == dir {
					faults[pos] = true
				}
			}
			if text := errorText(e); unresolved.MatchString(text) || undefined.MatchString(text) {
				faults.addAround(in.Files, e.Position())
			}
		}
		n := len(l.errs)
		l.errs = faults.without(l.errs)
		if n == len(l.errs) {
			continue
		}
		if l.faulty == nil {
			l.faulty = places{}
		}
		maps.Copy(l.faulty, faults)
		theirs = append(theirs, mistake{Diagnostic: schema.Diagnostic{
			Severity: schema.Error, Rule: schema.RuleDependency, Position: schema.Position{Path: path.Join(dir, path.Base(in.Files[0].Filename)), Line: 1, Column: 1},
			Message: fmt.Sprintf("depends on %s, which does not compile", dir),
		}})
	}
	return theirs
}

// faultOf returns what reports whether a mistake is that an object gives a field which a library that is wrong
// declares, where none may be.
func faultOf(l *loaded) func(mistake) bool {
	names := map[string]bool{}
	for _, f := range allFiles(l.inst) {
		if len(l.faulty) == 0 {
			break
		}
		ast.Walk(f, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && l.faulty[position(field.Label.Pos())] {
				names[lax.Label(field)] = true
			}
			return true
		}, nil)
	}
	return func(m mistake) bool { return m.Rule == schema.RuleUnknownField && names[lastOf(m.Field)] }
}

// concerns reports whether CUE's errors name a place in a directory.
func concerns(l *loaded, dir string) bool {
	return slices.ContainsFunc(l.errs, func(e errors.Error) bool {
		return slices.ContainsFunc(errors.Positions(e), func(at token.Pos) bool { return path.Dir(position(at).Path) == dir })
	})
}

// atDefaults moves what is said of a reference to the default that it has its value of, if that is what is wrong.
func atDefaults(l *loaded, found []mistake) []mistake {
	for i := range found {
		m := &found[i]
		if m.Rule != schema.RuleWrongType && m.Rule != schema.RuleOutOfRange {
			continue
		}
		at := m.Position
		for _, f := range allFiles(l.inst) {
			if strings.TrimPrefix(f.Filename, "/") != at.Path {
				continue
			}
			isAt := func(p token.Pos) bool { return position(p) == at }
			ast.Walk(f, func(n ast.Node) bool {
				if e := valueAtPlace(n, isAt); e != nil {
					if lit := defaultOf(e); lit != nil && (lit.Kind == token.STRING || m.Rule == schema.RuleOutOfRange) {
						m.Position = position(lit.Pos())
					}
				}
				return true
			}, nil)
		}
	}
	return found
}
