package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/policytext"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/compile/walk"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

// A policy demands what it says: each regular field that it names has to be in an object, with a value
// that fits. It is joined with the object's data as a closed struct, so that it adds nothing to that, and of
// alternatives only those count that the object meets. Where this fails it is joined with the data as an
// open one, for what CUE then says of the values, and for what may be missing nevertheless: a field with a
// default, and a list or a map that the object lacks, which is an empty one.

// check says how an object breaks a policy, or what is wrong with the policy; false if it does not.
func (p *policy) check(c *collection, o *object, j *policytext.Object) (mistake, bool) {
	kind := cue.ParsePath(string(o.Kind))
	holds := func(data cue.Value) bool { return policytext.Meets(p.value.FillPath(kind, data).LookupPath(kind)) }
	data, _ := j.With(nil)
	if holds(data.Closed) {
		return mistake{}, false
	}
	if more, ok := j.With(p.maps(o.Kind)); ok {
		if holds(more.Closed) {
			return mistake{}, false
		}
		data = more
	}
	joined := p.value.FillPath(kind, data.Open)
	if err := joined.LookupPath(kind).Validate(cue.Concrete(true)); err != nil {
		return p.broken(c, o, joined, errors.Errors(err)), true
	}
	plain, err := valid.Parse(j.Data)
	if err != nil {
		return mistake{}, false // it is canonical
	}
	at, demanded := lacking(valid.Of(o.Kind), joined.LookupPath(kind), plain, nil)
	if len(at) == 0 {
		return mistake{}, false
	}
	if n, known := unknownIn(valid.Of(o.Kind), at); n >= 0 {
		return p.demanded(o.Kind, at[:n+1], known), true
	}
	top := []string{string(o.Kind), o.Name}
	m := p.breach(top)
	var wrong error
	if m.Message, wrong = p.message(joined); wrong != nil {
		return p.unfit(fieldPath(top), errors.Errors(wrong)[0]), true
	}
	if demanded.IsConcrete() && demanded.IncompleteKind()&(cue.StructKind|cue.ListKind) == 0 {
		m.Expected = terms.Clip(fmt.Sprint(demanded))
	}
	p.place(&m, c, top, at)
	return m, true
}

// maps returns the paths of the maps and lists that a policy names, other than as what may be missing: what it
// demands of one holds of an empty one, if the object has none.
func (p *policy) maps(kind schema.Kind) [][]string {
	if paths, ok := p.empty[kind]; ok {
		return paths
	}
	var paths [][]string
	if p.from.policies != nil {
		paths = p.from.policies.Maps(p.name, kind, p.value.LookupPath(cue.ParsePath(string(kind))))
	}
	if p.empty == nil {
		p.empty = map[schema.Kind][][]string{}
	}
	p.empty[kind] = paths
	return paths
}

// lacking returns the path of the first field that a policy, joined with the data of an object, names and
// that the data lacks, with what the policy wants there. rule is that of the data at path.
func lacking(rule *valid.Rule, joined cue.Value, data any, path []string) (at []string, demanded cue.Value) {
	if list, ok := data.([]any); ok {
		elements, err := joined.List()
		for i := 0; err == nil && elements.Next() && i < len(list); i++ {
			if at, demanded = lacking(elementOf(rule), elements.Value(), list[i], append(slices.Clip(path), strconv.Itoa(i))); at != nil {
				return at, demanded
			}
		}
		return nil, cue.Value{}
	}
	fields, err := joined.Fields()
	given, ok := data.(map[string]any)
	for err == nil && ok && fields.Next() {
		name, ok := label(fields)
		if !ok {
			continue
		}
		full, in := append(slices.Clip(path), name), ruleBelow(rule, name)
		if isCheck(rule, name, fields.Value()) {
			continue
		}
		value, there := given[name]
		if !there && mustHave(rule, name, in, fields.Value()) {
			return full, fields.Value()
		}
		if !there && in != nil && in.Type == valid.Map {
			value = map[string]any{}
		}
		if at, demanded = lacking(in, fields.Value(), value, full); at != nil {
			return at, demanded
		}
	}
	return nil, cue.Value{}
}

// isCheck reports whether a field that a policy names is there for the policy itself, as a hidden one is: that
// cannot have a computed name, "_x-\(k)". A map such as the environment may have an entry of such a name,
// which is no truth value and no number.
func isCheck(rule *valid.Rule, name string, v cue.Value) bool {
	if !strings.HasPrefix(name, "_") {
		return false
	}
	return rule == nil || rule.Type != valid.Map || v.IncompleteKind()&^(cue.BoolKind|cue.NumberKind) == 0
}

// mustHave reports whether a field that an object lacks has to be in it, since a policy names it with a value:
// not one with a default. rule is that of what holds it, in its own.
func mustHave(rule *valid.Rule, name string, in *valid.Rule, v cue.Value) bool {
	if n, _ := unknownIn(rule, []string{name}); n >= 0 {
		return true
	}
	switch {
	case in != nil && in.Type == valid.Map && v.IncompleteKind() == cue.StructKind:
		return false
	case in != nil && in.Type == valid.List && v.IncompleteKind() == cue.ListKind:
		n, err := v.Len().Int64()
		return err == nil && n > 0
	}
	_, optional := v.Default()
	return !optional
}

// withoutValue is what CUE says of a field that a policy names, and that an object does not have.
var withoutValue = lazyregexp.New(`^incomplete value |^field is required but not present`)

// impossible says, at the policy, that it demands a field that no object of a kind can have: whoever
// wrote the object can do nothing about it. A field that has a value, or gets one of others, is no demand.
func (p *policy) impossible(kind schema.Kind, errs []errors.Error) (mistake, bool) {
	for _, e := range errs {
		path := p.below(e)
		n, known := unknownIn(valid.Of(kind), path)
		if n < 0 || !withoutValue.MatchString(errorText(e)) {
			continue
		}
		return p.demanded(kind, path[:n+1], known), true
	}
	return mistake{}, false
}

// demanded says that a policy demands the field at a path, which no object of a kind can have; known are
// those that it can have there.
func (p *policy) demanded(kind schema.Kind, path, known []string) mistake {
	above := []string{policyField, p.name, string(kind)}
	at, name := slices.Concat(above, path), path[len(path)-1]
	field := strings.ReplaceAll(fieldPath(at), strconv.Quote(anyEntry), "*")
	m := mistake{Diagnostic: schema.Diagnostic{
		Severity: p.severity, Rule: schema.RulePolicy, Field: field, Position: p.from.where.of(at, true),
		Message: fmt.Sprintf("demands the field %s, which no %s has", strings.TrimPrefix(field, fieldPath(above)+"."), kind),
		Hint:    fmt.Sprintf("what a policy needs for itself is a hidden field: _%s", name),
	}}
	if near := cmp.Or(valid.Nearest(name, known), aliasIn(valid.Of(kind), path)); near != "" {
		m.Hint = fmt.Sprintf("did you mean %s?", near)
	} else if all := pathsTo(valid.Of(kind), name, nil); len(all) == 1 {
		m.Hint = fmt.Sprintf("did you mean %s?", fieldPath(all[0]))
	}
	return m
}

// aliasIn returns the path of the field that users of other systems write the last name of a path for; "" if none is known.
func aliasIn(rule *valid.Rule, path []string) string {
	above, name := path[:len(path)-1], path[len(path)-1]
	for _, name := range above {
		rule = ruleBelow(rule, name)
	}
	if rule == nil {
		return ""
	}
	for to := range strings.SplitSeq(rule.Alias[name], ".") { // not words that say more
		if !rule.Has(to) {
			return ""
		}
		rule, above = rule.Field(to).Rule, append(slices.Clip(above), to)
	}
	return fieldPath(above)
}

// anyEntry stands in a data path for each entry of a map.
const anyEntry = "…"

// pathsTo returns the paths of the fields of a name in data by a rule that is at a path, without those in lists
// and maps.
func pathsTo(rule *valid.Rule, name string, at []string) (out [][]string) {
	if rule == nil || len(at) > maxDepth {
		return nil
	}
	for i := range rule.Fields {
		f := &rule.Fields[i]
		full := append(slices.Clip(at), f.Name)
		if f.Name == name {
			out = append(out, full)
		}
		out = append(out, pathsTo(f.Rule, name, full)...)
	}
	return out
}

// demands returns those of a policy's demands that no object can meet, also if it is for none so far.
func (p *policy) demands() (out []mistake) {
	for _, kind := range schema.Kinds() {
		p.impossibleIn(kind, p.value.LookupPath(cue.ParsePath(string(kind))), nil, &out)
		w := &demanding{policy: p, kind: kind, out: &out}
		for _, f := range p.from.where.files {
			for _, field := range walk.Find(f.Decls, []string{policyField, p.name, string(kind)}) {
				w.expr(field.Value, valid.Of(kind), nil)
			}
		}
	}
	return out
}

// demanding goes through what is written of a policy: what depends on a condition is no field of it before
// there is an object that meets that, and an element of a list none before there is a list.
type demanding struct {
	*policy
	kind schema.Kind
	out  *[]mistake
}

// expr adds the fields of an expression that no object can have at a path, of which rule is the rule.
func (d *demanding) expr(e ast.Expr, rule *valid.Rule, path []string) {
	if rule == nil || len(path) > maxDepth {
		return
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		d.expr(e.X, rule, path)
	case *ast.UnaryExpr: // the mark of a default
		d.expr(e.X, rule, path)
	case *ast.BinaryExpr:
		d.expr(e.X, rule, path)
		d.expr(e.Y, rule, path)
	case *ast.Comprehension:
		d.expr(e.Value, rule, path)
	case *ast.Ellipsis:
		d.expr(e.Type, rule, path)
	case *ast.ListLit:
		for _, element := range e.Elts {
			d.expr(element, elementOf(rule), append(slices.Clip(path), "0"))
		}
	case *ast.StructLit:
		for _, decl := range e.Elts {
			switch decl := decl.(type) {
			case *ast.EmbedDecl:
				d.expr(decl.Expr, rule, path)
			case *ast.Comprehension:
				d.expr(decl.Value, rule, path)
			case *ast.Field:
				d.field(decl, rule, path)
			}
		}
	}
}

// field adds a field that no object can have, or those in it.
func (d *demanding) field(f *ast.Field, rule *valid.Rule, path []string) {
	name := lax.Label(f)
	if name == "" { // a pattern, or computed
		if len(rule.Fields) == 0 {
			d.expr(f.Value, rule.Elem, append(slices.Clip(path), anyEntry))
		}
		return
	}
	full := append(slices.Clip(path), name)
	n, known := unknownIn(rule, []string{name})
	switch {
	case hidden(f) || len(path) == 0 && name == "name":
	case n < 0:
		d.expr(f.Value, ruleBelow(rule, name), full)
	case !slices.ContainsFunc(*d.out, func(m mistake) bool { return m.Position == edge(f, true) }):
		m := d.demanded(d.kind, full, known)
		m.Position = edge(f, true)
		*d.out = append(*d.out, m)
	}
}

// impossibleIn adds the fields in a struct at a path that no object of a kind can have.
func (p *policy) impossibleIn(kind schema.Kind, v cue.Value, path []string, out *[]mistake) {
	it, err := v.Fields(cue.Optional(true))
	for err == nil && it.Next() && len(*out) < maxDiagnostics && len(path) < maxDepth {
		if it.Selector().LabelType() != cue.StringLabel || it.Selector().ConstraintType() == cue.PatternConstraint {
			continue
		}
		at := append(slices.Clip(path), it.Selector().Unquoted())
		n, known := unknownIn(valid.Of(kind), at)
		switch {
		case n >= 0:
			*out = append(*out, p.demanded(kind, at, known))
		case n < 0 && it.Value().IncompleteKind() == cue.StructKind:
			p.impossibleIn(kind, it.Value(), at, out)
		}
	}
}

// mismatched is what CUE says of two values of different types.
var mismatched = lazyregexp.New(`\(mismatched types ([a-z]+) and ([a-z]+)\)$`)

// cueTypes are CUE's names of the types that a value by a rule always has.
var cueTypes = map[valid.Type]string{
	valid.Int: "int", valid.String: "string", valid.Enum: "string", valid.Time: "string", valid.List: "list", valid.Map: "struct", valid.Struct: "struct",
}

// mistyped says, at the policy, that it demands a type of a field that the field has in no object of a
// kind, as <="10" does of a number. Of several alternatives all have to be such.
func (p *policy) mistyped(kind schema.Kind, errs []errors.Error) (mistake, bool) {
	path := p.below(errs[0])
	typ, demanded := cueTypes[typeAt(valid.Of(kind), path)], ""
	for _, e := range errs {
		text := errorText(e)
		if typ == "" || !slices.Equal(p.below(e), path) {
			return mistake{}, false
		}
		switch m := mismatched.FindStringSubmatch(text); {
		case emptyDisjunction.MatchString(text):
		case m == nil:
			return mistake{}, false
		case m[1] == typ:
			demanded = m[2]
		case m[2] == typ:
			demanded = m[1]
		}
	}
	if demanded == "" || demanded == typ {
		return mistake{}, false
	}
	at, of := slices.Concat([]string{policyField, p.name, string(kind)}, path), fmt.Sprintf("each %s, which is of type %s", kind, typ)
	if len(path) > 0 {
		of = fmt.Sprintf("the field %s, which is of type %s in each %s", fieldPath(path), typ, kind)
	}
	return mistake{Diagnostic: schema.Diagnostic{
		Severity: p.severity, Rule: schema.RulePolicy, Field: fieldPath(at), Position: p.from.where.of(at, false),
		Message: fmt.Sprintf("demands the type %s of %s", demanded, of),
		Hint:    "compare it with a value of type " + typ,
	}}, true
}

// typeAt returns the type that a rule gives what is at a path; "" if it says nothing of it.
func typeAt(rule *valid.Rule, path []string) valid.Type {
	for _, name := range path {
		rule = ruleBelow(rule, name)
	}
	if rule == nil {
		return ""
	}
	return rule.Type
}

// strangers returns what a policy compares a field with that has other words. A name that may be that of a declared
// priority is looked for when all packages are there.
func (r *policyReader) strangers() (out []mistake) {
	if r.from.policies == nil {
		return nil
	}
	for _, w := range r.from.policies.Strangers(r.name) {
		m := mistake{Diagnostic: schema.Diagnostic{
			Severity: r.severity, Rule: schema.RulePolicy, Field: fieldPath([]string{policyField, r.name}), Position: position(w.Pos),
		}}
		known, quote := w.Rule.Words, "%q"
		switch {
		case w.Mistyped:
			m.Message, m.Hint = fmt.Sprintf("compares with %s a field which is always of type %s", w.Text, w.Rule.Type), fmt.Sprintf("compare it with a value of type %s", w.Rule.Type)
		case w.Unknown:
			known, quote = fieldNames(w.Rule), "%s"
			m.Message = fmt.Sprintf("uses %s, which there never is", terms.Text(w.Used))
		case w.Rule.Type == valid.Priority:
			r.named = append(r.named, policyPath{Path: w.Text, At: position(w.Pos), What: nameOfPriority, Near: valid.Nearest(w.Text, known), Severity: r.severity})
			continue
		default:
			m.Message, m.Expected = fmt.Sprintf("compares a field with %q, which it never is", w.Text), "one of "+terms.Clip(strings.Join(known, ", "))
		}
		if near := cmp.Or(valid.Nearest(w.Text, known), w.Rule.Alias[w.Text]); near != "" && !w.Mistyped {
			m.Hint = fmt.Sprintf("did you mean "+quote+"?", near)
		}
		out = append(out, m)
	}
	return out
}

// fieldNames returns the names of the fields of a struct by a rule.
func fieldNames(rule *valid.Rule) (names []string) {
	for i := range rule.Fields {
		names = append(names, rule.Fields[i].Name)
	}
	return names
}

// idle returns warnings of the checks of a policy that have no effect, as far as the syntax shows it.
func (r *policyReader) idle() (out []mistake) {
	if r.from.policies == nil {
		return nil
	}
	for _, i := range r.from.policies.Idles(r.name) {
		name, text := lax.Label(i.Field), terms.Text(i.Field.Value)
		m := mistake{Diagnostic: schema.Diagnostic{
			Severity: schema.Warning, Rule: schema.RulePolicy, Field: fieldPath([]string{policyField, r.name}), Position: edge(i.Field, true),
			Message: fmt.Sprintf("%s may be false, and nothing demands that it is true", name), Hint: fmt.Sprintf("a check is _%s: true & (%s)", strings.TrimLeft(name, "_#"), text),
		}}
		if i.Outside {
			m.Message, m.Hint = fmt.Sprintf("%s has no effect beside the kinds of objects", name), "write it into the struct of the kind, such as job: {…}"
		}
		out = append(out, m)
	}
	return out
}

// unknownIn returns which name of a path no object by a rule can have, and those that there are instead;
// -1 if it can have all.
func unknownIn(rule *valid.Rule, path []string) (n int, known []string) {
	for n, name := range path {
		switch {
		case rule == nil || strings.HasPrefix(name, "_") || strings.HasPrefix(name, "#") || n == 0 && name == "name":
			return -1, nil
		case rule.Has(name):
			rule = rule.Field(name).Rule
		case len(rule.Fields) > 0:
			return n, fieldNames(rule)
		default:
			rule = rule.Elem
		}
	}
	return -1, nil
}

// ruleBelow returns the rule of what is called name in data by a rule; nil if that says nothing of it.
func ruleBelow(rule *valid.Rule, name string) *valid.Rule {
	if rule.Has(name) {
		return rule.Field(name).Rule
	}
	return elementOf(rule)
}

// elementOf returns the rule of the elements of a list or map by a rule; nil if it says nothing of them.
func elementOf(rule *valid.Rule) *valid.Rule {
	if rule == nil {
		return nil
	}
	return rule.Elem
}

// overlooked returns the hidden fields of a package that hold policies under another name: they would
// hold for nothing. What the package refers to is a part of something else. Definitions are those that may be a part of
// something in another package.
func overlooked(l *loaded) (out []mistake, definitions []policyPath) {
	if l.dir != "." && !below(l.dir, "cells") { // where policies have no effect in any case
		return nil, nil
	}
	names := map[string]bool{}
	for _, f := range l.where.files {
		ast.Walk(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Node != nil {
				names[id.Name] = true
			}
			return true
		}, nil)
	}
	for _, f := range l.where.files {
		for _, d := range f.Decls {
			field, ok := d.(*ast.Field)
			if !ok || !l.where.mine(position(field.Pos()).Path) {
				continue
			}
			if name := lax.Label(field); name != policyField && hidden(field) && !names[name] && holdsPolicies(l, name) {
				if strings.HasPrefix(name, "#") {
					definitions = append(definitions, policyPath{Path: name, At: edge(field, true), What: nameOfPolicies})
				} else {
					out = append(out, mistake{Diagnostic: holdsNothing(name, edge(field, true))})
				}
			}
		}
	}
	return out, definitions
}

// holdsPolicies reports whether a hidden field of a package has what only policies have, or a definition whose name
// is like theirs.
func holdsPolicies(l *loaded, name string) bool {
	if !strings.HasPrefix(name, "#") {
		return likePolicies(l.value.LookupPath(cue.MakePath(cue.Hid(name, l.inst.ID()))), near(name))
	}
	return near(name) && likePolicies(l.value.LookupPath(cue.MakePath(cue.Def(name))), true)
}

// holdsNothing says that a field holds policies under another name.
func holdsNothing(name string, at schema.Position) schema.Diagnostic {
	return schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RulePolicy, Position: at, Field: name,
		Message: fmt.Sprintf("field %s holds policies, and has no effect", name), Hint: fmt.Sprintf("did you mean %s?", policyField),
	}
}

// near reports whether a name is probably meant to be that of policies.
func near(name string) bool {
	name = strings.ToLower(strings.TrimLeft(name, "_#"))
	return slices.Contains([]string{"pol", "poli", "polic"}, name) || valid.Nearest(name, []string{"policy", "policies"}) != ""
}

// likePolicies reports whether a value is policies by name: each is a struct with what only a policy has. One by a
// name like theirs has a kind of objects at the least, and nothing else.
func likePolicies(v cue.Value, named bool) bool {
	fields, err := v.Fields()
	n := 0
	for err == nil && fields.Next() {
		says, of, other := named, false, false
		in, wrong := fields.Value().Fields()
		for wrong == nil && in.Next() {
			name, _ := label(in)
			says = says || slices.Contains(policyFields, name)
			of = of || isKindName(name)
			other = other || !slices.Contains(policyFields, name) && !isKindName(name)
		}
		if !says || !of || other && named {
			return false
		}
		n++
	}
	return n > 0
}
