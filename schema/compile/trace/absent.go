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

var requiredMissing = lazyregexp.New(`required field missing: ("[^"]*"|[^ ()]+)`)

// MissingName returns the name of the required field that a text of CUE's says is missing.
func MissingName(text string) (name string, ok bool) {
	m := requiredMissing.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return strings.Trim(m[1], `"`), true
}

// Required replaces the errors of what refers to a required field that is not given by errors of
// the field itself, where a package has it among the parameters of its objects and its hidden
// fields. Those of objects come before others, which may be made to be completed.
func Required(v cue.Value, errs []errors.Error) []errors.Error {
	var out []errors.Error
	known := map[string][]Origin{}
	said := map[string]bool{}
	for _, e := range errs {
		name, ok := MissingName(e.Error())
		if !ok {
			out = append(out, e)
			continue
		}
		if _, ok := known[name]; !ok {
			known[name] = absent(v, &walk{name: name})
			if len(known[name]) == 0 {
				known[name] = absent(v, &walk{name: name, around: true})
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

// absent returns the required fields that are looked for and are not given.
func absent(v cue.Value, w *walk) []Origin {
	w.left = maxWalked
	w.fields(v, nil)
	w.found = slices.DeleteFunc(slices.Clone(w.found), func(o Origin) bool { return w.copied(v, o) })
	ofObjects := func(o Origin) bool { return o.Path.Selectors()[0].LabelType() == cue.StringLabel }
	if slices.ContainsFunc(w.found, ofObjects) {
		return slices.DeleteFunc(w.found, func(o Origin) bool { return !ofObjects(o) })
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
	name  string
	unset bool // what has no value is looked for, not what is required
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
	if op, args := parts[0].Expr(); op == cue.AndOp {
		parts = args
	}
	return slices.ContainsFunc(parts, func(p cue.Value) bool {
		_, to := p.ReferencePath()
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
		return
	}
	for it.Next() {
		sel := it.Selector()
		if len(at) == 0 && sel.IsDefinition() {
			continue
		}
		switch sel.ConstraintType() {
		case cue.RequiredConstraint:
			if !w.unset && sel.LabelType() == cue.StringLabel && w.means(sel.Unquoted(), it.Value()) {
				w.found = append(w.found, Origin{cue.MakePath(append(slices.Clone(at), cue.Str(sel.Unquoted()))...), it.Value()})
			}
		case cue.OptionalConstraint:
		default:
			if known, _ := it.Value().Default(); w.unset && strings.TrimRight(sel.String(), "!?") == w.name && known.Err() == nil && !known.IsConcrete() {
				w.found = append(w.found, Origin{cue.MakePath(append(slices.Clone(at), sel)...), it.Value()})
				continue
			}
			w.value(it.Value(), append(slices.Clip(at), sel))
		}
	}
}

// means reports whether a required field is the one that is looked for, or what it would be in.
func (w *walk) means(name string, v cue.Value) bool {
	if !w.around {
		return name == w.name
	}
	in := cue.Str(w.name)
	return v.LookupPath(cue.MakePath(in)).Exists() || v.LookupPath(cue.MakePath(in.Required())).Exists()
}

func (w *walk) value(v cue.Value, at []cue.Selector) {
	if w.left--; w.left > 0 && v.IncompleteKind()&(cue.StructKind|cue.ListKind) != 0 {
		w.fields(v, at)
	}
}
