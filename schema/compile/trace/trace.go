package trace

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema/compile/terms"
)

const (
	// maxFollowed bounds how many expressions are followed from one value.
	maxFollowed = 300
	// maxDepth bounds how deep arguments are looked for: from a kind to a field of a task.
	maxDepth = 6
	// maxErrors bounds how many mistakes of arguments are returned.
	maxErrors = 100
)

// Origin is a value that another refers to.
type Origin struct {
	// Path is its data path: in the package, or in what encloses it if that has no path.
	Path cue.Path
	// Value is what stands there.
	Value cue.Value
}

// Origins returns what a value refers to, and what that refers to, the nearest first.
func Origins(v cue.Value) (out []Origin) {
	defer func() { _ = recover() }() // as in elements: what is found so far is better than nothing
	left := maxFollowed
	origins(v, &left, &out)
	return out
}

func origins(v cue.Value, left *int, out *[]Origin) {
	if *left--; *left < 0 {
		return
	}
	if to, ok := referred(v); ok {
		if usable(to.Value) {
			*out = append(*out, to)
			origins(to.Value, left, out)
		}
		return
	}
	if to := cue.Dereference(v); to.Pos().IsValid() && to.Pos() != v.Pos() && to.Path().Err() != nil {
		if usable(to) {
			*out = append(*out, Origin{Value: to}) // of a let clause, which has no path
		}
		origins(to, left, out)
		return
	}
	op, args := Expr(v)
	if op != cue.NoOp {
		for _, a := range args {
			origins(a, left, out)
		}
		if op == cue.SelectorOp {
			given(args[0], left, out)
		}
		return
	}
	for _, e := range elements(v) {
		origins(e, left, out)
	}
}

// given follows the arguments of a template that is written as a function: (#Make & {in: …}).out.
func given(v cue.Value, left *int, out *[]Origin) {
	op, parts := Expr(v)
	if op != cue.AndOp {
		return
	}
	for _, p := range parts {
		if inner, _ := Expr(p); inner != cue.NoOp {
			continue // the template itself
		}
		it, err := p.Fields(cue.Definitions(true), cue.Hidden(true))
		for err == nil && it.Next() {
			origins(it.Value(), left, out)
		}
	}
}

// Indexed returns what is indexed at a position in the expression that a value is, and by what; false if
// nothing is.
func Indexed(v cue.Value, at token.Pos) (of, by cue.Value, ok bool) {
	defer func() { ok = recover() == nil && ok }() // as in elements
	left := maxFollowed
	var find func(cue.Value)
	find = func(v cue.Value) {
		if left--; left < 0 || ok {
			return
		}
		op, args := Expr(v)
		if op == cue.IndexOp && args[1].Pos() == at {
			of, by, ok = args[0], args[1], true
			return
		}
		if op == cue.NoOp {
			return
		}
		for _, a := range args {
			find(a)
		}
	}
	find(v)
	return of, by, ok
}

// usable reports whether a value can be looked at: see elements.
func usable(v cue.Value) (ok bool) {
	defer func() { ok = recover() == nil }()
	_ = v.Err()
	known, _ := v.Default()
	_, _ = known.IsConcrete(), known.Err()
	_, _ = v.Expr()
	return true
}

// elements returns those of a list; none if CUE does not know them yet, which it says by a panic
// where the value is a variable of a comprehension.
func elements(v cue.Value) (out []cue.Value) {
	defer func() {
		if recover() != nil {
			out = nil
		}
	}()
	known, _ := v.Default()
	it, err := known.List()
	for err == nil && it.Next() {
		out = append(out, it.Value())
	}
	return out
}

// referred returns what a value stands for, if it is a reference and that is known.
func referred(v cue.Value) (Origin, bool) {
	to, ok := dereferenced(v)
	if !ok {
		return Origin{}, false
	}
	_, p := v.ReferencePath()
	if p.Err() != nil || len(p.Selectors()) == 0 {
		p = selected(v, to) // there is a variable of a comprehension in it
	}
	if same := to.Path().String() == v.Path().String() && to.Pos() == v.Pos(); same || p.Err() != nil || len(p.Selectors()) == 0 {
		return Origin{}, false
	}
	return Origin{p, to}, true
}

// Referred returns what a value stands for, if it is a reference and that is known: also if
// what it stands for, or what holds it, is in error, of which Dereference says nothing.
func Referred(v cue.Value) (o Origin, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	root, p := v.ReferencePath()
	if p.Err() == nil && len(p.Selectors()) > 0 {
		if to := root.LookupPath(p); to.Exists() && usable(to) {
			return Origin{p, to}, true
		}
	}
	if o, ok := referred(v); ok && usable(o.Value) {
		return o, true
	}
	op, args := Expr(v)
	if op != cue.SelectorOp {
		return Origin{}, false
	}
	label, err := args[1].String()
	base, ok := Referred(args[0])
	if !ok || err != nil {
		return Origin{}, false
	}
	sel := cue.Str(label)
	if strings.HasPrefix(label, "#") {
		sel = cue.Def(label)
	}
	to := base.Value.LookupPath(cue.MakePath(sel))
	return Origin{cue.MakePath(append(slices.Clip(base.Path.Selectors()), sel)...), to}, to.Exists() && usable(to)
}

// dereferenced returns what a value stands for, if CUE has that: see elements.
func dereferenced(v cue.Value) (to cue.Value, ok bool) {
	defer func() { ok = recover() == nil }()
	return cue.Dereference(v), true
}

// selected returns the data path of what a value stands for: of x.y that of x, and y, since x
// may be one with a definition, whose path is its own. There is none of what is computed.
func selected(v, to cue.Value) cue.Path {
	op, args := Expr(v)
	switch op {
	case cue.NoOp:
		return to.Path()
	case cue.SelectorOp:
		if _, ok := dereferenced(args[0]); !ok {
			return to.Path() // of the variable of a comprehension
		}
		label, err := args[1].String()
		if base, ok := referred(args[0]); ok && err == nil {
			return cue.MakePath(append(slices.Clip(base.Path.Selectors()), cue.Str(label))...)
		}
	}
	return cue.Path{}
}

// Allowed is what the definitions that a struct is made of let it have.
type Allowed struct {
	// Fields are the labels, in the order in which they are declared.
	Fields []string
	// Patterns are what a label that is none of them must match.
	Patterns []cue.Value
	// Branches are fields that the definitions have under conditions.
	Branches []terms.Branch
}

// Fields returns what the struct at a path in a value may have by the definitions that it is
// made of. What has a field of the name but is left out: that is where it is not allowed.
func Fields(v cue.Value, at []cue.Selector, but string) Allowed {
	f := &finder{but: but, left: maxFollowed}
	if u, ok := UnionOf(v.LookupPath(cue.MakePath(at...))); ok && u.Structs() {
		if chosen, ok := u.Chosen(); ok {
			f.find(chosen, nil)
			return f.found
		}
	}
	if len(at) >= ofObject {
		if object := v.LookupPath(cue.MakePath(at[:ofObject]...)); object.Exists() {
			v, at = object, at[ofObject:]
		}
	}
	f.find(v, at)
	return f.found
}

// ofObject is how many labels lead to an object: the thousands of others of its kind are not looked at.
const ofObject = 2

type finder struct {
	but   string
	left  int
	found Allowed
}

func (f *finder) find(v cue.Value, at []cue.Selector) {
	if f.left--; f.left < 0 {
		return
	}
	if to, ok := referred(v); ok {
		f.find(to.Value, at)
		return
	}
	switch op, args := Expr(v); {
	case op == cue.AndOp || op == cue.OrOp:
		for _, a := range args {
			f.find(a, at)
		}
		return
	case op == cue.SelectorOp && len(at) == 0 && f.given(args[0], maxDepth):
		f.find(args[0], at)
		return
	case op == cue.SelectorOp && len(at) > 0:
		f.find(args[0], at)
	}
	if len(at) == 0 {
		f.note(v)
		return
	}
	for _, sel := range []cue.Selector{at[0], at[0].Optional(), cue.AnyString} {
		if sel == cue.AnyString && at[0].LabelType() != cue.StringLabel {
			break
		}
		if next := v.LookupPath(cue.MakePath(sel)); next.Exists() {
			f.find(next, at[1:])
		}
	}
}

// given reports whether one of the structs that a value is joined from has the field.
func (f *finder) given(v cue.Value, depth int) bool {
	op, args := Expr(v)
	if op == cue.AndOp && depth > 0 {
		return slices.ContainsFunc(args, func(a cue.Value) bool { return f.given(a, depth-1) })
	}
	return v.LookupPath(cue.MakePath(cue.Str(f.but))).Exists()
}

// note adds what one struct may have.
func (f *finder) note(v cue.Value) {
	it, err := v.Fields(cue.Optional(true), cue.Patterns(true))
	if err != nil {
		return
	}
	var have Allowed
	for it.Next() {
		switch s := it.Selector(); {
		case s.ConstraintType() == cue.PatternConstraint:
			have.Patterns = append(have.Patterns, s.Pattern())
		case s.LabelType() == cue.StringLabel:
			have.Fields = append(have.Fields, s.Unquoted())
		}
	}
	if slices.Contains(have.Fields, f.but) {
		return
	}
	for _, b := range terms.Branches(v.Source()) {
		if !slices.Contains(have.Fields, b.Name) && !slices.Contains(f.found.Branches, b) {
			f.found.Branches = append(f.found.Branches, b)
		}
	}
	for _, name := range have.Fields {
		if !slices.Contains(f.found.Fields, name) {
			f.found.Fields = append(f.found.Fields, name)
		}
	}
	for _, p := range have.Patterns {
		if !slices.ContainsFunc(f.found.Patterns, func(o cue.Value) bool { return fmt.Sprint(o) == fmt.Sprint(p) }) {
			f.found.Patterns = append(f.found.Patterns, p)
		}
	}
}

// Arguments returns what is wrong with the arguments of templates that are written as
// functions, (#Make & {in: …}).out, in a value and its fields: CUE evaluates no more of such
// an argument than the result needs, and so accepts any that has a default, whatever is given. IsMoved reports true of
// the errors of calls as a whole.
func Arguments(v cue.Value) (out []errors.Error) {
	arguments(v, maxDepth, &out)
	return out
}

func arguments(v cue.Value, depth int, out *[]errors.Error) {
	if depth == 0 || len(*out) >= maxErrors {
		return
	}
	if _, p := v.ReferencePath(); p.Err() == nil && len(p.Selectors()) > 0 {
		return // what it refers to is looked at where it is
	}
	op, args := Expr(v)
	switch op {
	case cue.AndOp:
		for _, a := range args {
			arguments(a, depth-1, out)
		}
	case cue.SelectorOp:
		result, _ := args[1].String()
		for _, e := range errors.Errors(args[0].Validate()) {
			at := e.Path()[min(len(e.Path()), len(v.Path().Selectors())):]
			switch {
			case len(at) == 0: // it is an error itself
				*out = append(*out, &moved{e, labelsOf(v)})
			case at[0] != result:
				*out = append(*out, e)
			}
		}
		return
	}
	it, err := v.Fields()
	for err == nil && it.Next() {
		arguments(it.Value(), depth-1, out)
	}
}

// labelsOf returns the labels of the data path of a value.
func labelsOf(v cue.Value) (labels []string) {
	for _, s := range v.Path().Selectors() {
		labels = append(labels, nameOf(s))
	}
	return labels
}

// Unmatched returns what is wrong with the parameters of the objects of a kind by a call of matchN or
// matchIf: CUE does not look at these in a definition while a field may come.
func Unmatched(objects cue.Value) (out []errors.Error) {
	all, err := objects.Fields()
	for err == nil && all.Next() {
		params, err := all.Value().Fields(cue.Definitions(true))
		for err == nil && params.Next() && len(out) < maxErrors {
			if !params.Selector().IsDefinition() {
				continue
			}
			for _, e := range errors.Errors(params.Value().Validate(cue.Concrete(true))) {
				if strings.Contains(e.Error(), "does not satisfy match") {
					out = append(out, e)
				}
			}
		}
	}
	return out
}

// NoValue reports whether a value is none yet.
func NoValue(v cue.Value) bool {
	if v.Err() != nil {
		return false
	}
	known, _ := v.Default()
	return known.Err() == nil && !known.IsConcrete()
}
