package trace

import (
	"slices"
	"strings"

	"github.com/musterhq/muster/schema/lazyregexp"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
)

// maxWalked bounds how many fields are looked at for those that are required.
const maxWalked = 20_000

// Absent says that a required field is not given, which CUE only says of what refers to it.
type Absent struct {
	failure
	Origin Origin
}

// Path is the data path of the field.
func (e *Absent) Path() []string {
	var at []string
	for _, s := range e.Origin.Path.Selectors() {
		at = append(at, strings.TrimRight(s.String(), "!?"))
	}
	return at
}

var requiredMissing = lazyregexp.New(`(?:required field missing|missing required field in for comprehension|cannot reference optional field): ("[^"]*"|[^ ()]+)`)

// requiredOperand is what CUE says of a struct that is compared and in which such a field is missing.
var requiredOperand = lazyregexp.New(`invalid (?:left|right)-hand value to '[^']*' \(type [a-z]+\): (?:[^ ]+\.)?("[^"]*"|[^ .]+): field is required but not present`)

// MissingName returns the name of the required field that a text of CUE's says is missing, or of one that may be left out
// and that an expression refers to.
func MissingName(text string) (name string, ok bool) {
	m := requiredMissing.FindStringSubmatch(text)
	if m == nil {
		m = requiredOperand.FindStringSubmatch(text)
	}
	if m == nil {
		return "", false
	}
	return strings.Trim(m[1], `"`), true
}

// Required replaces the errors of what refers to a required field that is not given by errors of
// the field itself, where a package has it among the parameters of its objects and its hidden
// fields. Those of objects come before others, which may be made to be completed.
func Required(v cue.Value, errs []errors.Error, own func(file string) bool) []errors.Error {
	var out []errors.Error
	known := map[string][]Origin{}
	said := map[string]bool{}
	for _, e := range errs {
		name, ok := MissingName(e.Error())
		if !ok {
			name, ok = absentDefinition(e)
		}
		if !ok {
			out = append(out, e)
			continue
		}
		if _, ok := known[name]; !ok {
			known[name] = absent(v, &walk{name: name})
			if len(known[name]) == 0 {
				known[name] = absent(v, &walk{name: name, around: true})
			}
			if len(known[name]) == 0 {
				known[name] = Lacking(v, name, own)
			}
			if len(known[name]) == 0 {
				known[name] = inCalls(v, name)
			}
		}
		if len(known[name]) == 0 {
			out = append(out, e)
		}
		for _, o := range known[name] {
			if !said[o.Path.String()] {
				said[o.Path.String()] = true
				out = append(out, &Absent{e, o})
			}
		}
	}
	return out
}

// absentDefinition returns the name of the definition that an error says a struct is to have.
func absentDefinition(e errors.Error) (name string, ok bool) {
	at := e.Path()
	if len(at) == 0 || !strings.HasPrefix(at[len(at)-1], "#") || !strings.Contains(e.Error(), "field is required but not present") {
		return "", false
	}
	return at[len(at)-1], true
}

// absent returns the required fields that are looked for and are not given.
func absent(v cue.Value, w *walk) []Origin {
	w.left = maxWalked
	w.fields(v, nil)
	w.found = slices.DeleteFunc(slices.Clone(w.found), func(o Origin) bool { return w.copied(v, o) })
	ofObjects := func(o Origin) bool {
		sels := o.Path.Selectors()
		return len(sels) > 0 && sels[0].LabelType() == cue.StringLabel
	}
	if slices.ContainsFunc(w.found, ofObjects) {
		return slices.DeleteFunc(w.found, func(o Origin) bool { return !ofObjects(o) })
	}
	return w.found
}

// NotGiven returns all required fields that are not given, in what Required looks for one in.
func NotGiven(v cue.Value) []Origin { return absent(v, &walk{}) }

// NotGivenIn returns the required fields that are not given in the hidden fields of a package whose names have a prefix.
func NotGivenIn(v cue.Value, prefix string) []Origin {
	w := &walk{left: maxWalked}
	it, err := v.Fields(cue.Hidden(true))
	for err == nil && it.Next() {
		if sel := it.Selector(); sel.LabelType() == cue.HiddenLabel && strings.HasPrefix(nameOf(sel), prefix) {
			w.value(it.Value(), []cue.Selector{sel})
		}
	}
	return w.found
}

// inCalls returns the required fields of a name that are not given to templates that are written as functions, in the
// hidden fields of a package: (#Make & {in: …}).out.
func inCalls(v cue.Value, name string) []Origin {
	w := &walk{name: name, left: maxWalked}
	it, err := v.Fields(cue.Hidden(true))
	for err == nil && it.Next() {
		op, args := Expr(it.Value())
		if it.Selector().LabelType() != cue.HiddenLabel || op != cue.SelectorOp {
			continue
		}
		if inner, _ := Expr(args[0]); inner == cue.AndOp {
			w.fields(args[0], []cue.Selector{it.Selector()})
		}
	}
	return w.found
}

// Unset returns the values of a name that are several alternatives, of which none is chosen, among the
// parameters of a package's objects and its hidden fields.
func Unset(v cue.Value, name string) []Origin {
	w := &walk{name: name, left: maxWalked, unset: true}
	w.fields(v, nil)
	return w.found
}

type walk struct {
	name  string // "" for any that is required
	unset bool   // what has no value is looked for, not what is required
	// required has what is required looked for too, and given notes what has a value.
	required bool
	given    []Origin
	// around has what is required found if the field would be in it.
	around bool
	left   int
	found  []Origin
}

// copied reports whether a field that is not given is one of what its struct refers to, where it is not
// given either.
func (w *walk) copied(v cue.Value, o Origin) bool {
	holder := func(o Origin) cue.Path {
		sels := o.Path.Selectors()
		return cue.MakePath(sels[:len(sels)-1]...)
	}
	parts := []cue.Value{v.LookupPath(holder(o))}
	if op, args := Expr(parts[0]); op == cue.AndOp {
		parts = args
	}
	return slices.ContainsFunc(parts, func(p cue.Value) bool {
		_, to := p.ReferencePath()
		if of, ok := dereferenced(p); ok && to.Err() != nil {
			to = of.Path() // of the variable of a comprehension
		}
		return to.Err() == nil && to.String() != "" && slices.ContainsFunc(w.found, func(other Origin) bool {
			return holder(other).String() == to.String() && to.String() != holder(o).String()
		})
	})
}

func (w *walk) fields(v cue.Value, at []cue.Selector) {
	defer func() { _ = recover() }() // as in elements: what is found so far is better than nothing
	if list, err := v.List(); err == nil {
		for i := 0; list.Next(); i++ {
			w.value(list.Value(), append(slices.Clip(at), cue.Index(i)))
		}
		return
	}
	it, err := v.Fields(cue.Optional(true), cue.Hidden(true), cue.Definitions(true))
	if err != nil {
		w.only(v, at)
		return
	}
	for it.Next() {
		sel := it.Selector()
		if len(at) == 0 && sel.IsDefinition() {
			continue
		}
		switch sel.ConstraintType() {
		case cue.RequiredConstraint:
			w.marked(sel, it.Value(), at)
		case cue.OptionalConstraint:
		default:
			if !w.lacks(Origin{cue.MakePath(append(slices.Clone(at), sel)...), it.Value()}, sel) {
				w.value(it.Value(), append(slices.Clip(at), sel))
			}
		}
	}
}

// marked notes a field that is required, if it is looked for.
func (w *walk) marked(sel cue.Selector, v cue.Value, at []cue.Selector) {
	plain := unmarked(sel)
	if wanted := w.required || !w.unset && sel.LabelType() == cue.StringLabel; wanted && w.means(nameOf(plain), v) {
		w.found = append(w.found, Origin{cue.MakePath(append(slices.Clone(at), plain)...), v})
	}
}

// lacks notes a field, if it is looked for, and reports whether it has no value.
func (w *walk) lacks(o Origin, sel cue.Selector) bool {
	if !w.unset || nameOf(sel) != w.name {
		return false
	}
	if NoValue(o.Value) || w.required && unsetElement(o.Value) {
		w.found = append(w.found, o)
		return true
	}
	w.given = append(w.given, o)
	return false
}

// only looks for the field alone in a struct that CUE does not list the fields of, as it cannot decide a
// condition in it.
func (w *walk) only(v cue.Value, at []cue.Selector) {
	sel := cue.Str(w.name)
	if strings.HasPrefix(w.name, "#") {
		sel = cue.Def(w.name)
	}
	if o := (Origin{cue.MakePath(append(slices.Clone(at), sel)...), v.LookupPath(cue.MakePath(sel))}); w.required && o.Value.Exists() && NoValue(o.Value) {
		w.found = append(w.found, o)
	}
}

// unmarked returns the label of a field that is required, without the mark.
func unmarked(s cue.Selector) cue.Selector {
	switch {
	case s.LabelType() == cue.HiddenLabel || s.LabelType() == cue.HiddenDefinitionLabel:
		return cue.Hid(nameOf(s), s.PkgPath())
	case s.IsDefinition():
		return cue.Def(nameOf(s))
	}
	return cue.Str(nameOf(s))
}

// nameOf returns the name of a field.
func nameOf(s cue.Selector) string {
	if s.LabelType() == cue.StringLabel {
		return s.Unquoted()
	}
	return strings.TrimRight(s.String(), "!?")
}

// means reports whether a required field is the one that is looked for, or what it would be in.
func (w *walk) means(name string, v cue.Value) bool {
	if !w.around {
		return w.name == "" || name == w.name
	}
	in := cue.Str(w.name)
	return v.LookupPath(cue.MakePath(in)).Exists() || v.LookupPath(cue.MakePath(in.Required())).Exists()
}

func (w *walk) value(v cue.Value, at []cue.Selector) {
	switch w.left--; {
	case w.left <= 0:
	case v.IncompleteKind()&(cue.StructKind|cue.ListKind) != 0:
		w.fields(v, at)
	case v.Err() != nil:
		w.only(v, at)
	}
}
