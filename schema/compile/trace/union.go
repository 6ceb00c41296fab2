package trace

import (
	stderrors "errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
)

const (
	// maxAlternatives bounds how many alternatives of one value are compared.
	maxAlternatives = 64
	// maxUnions bounds how many values with alternatives are looked at in one package.
	maxUnions = 200
)

// Union is a value that is one of several alternatives, and what is given for it.
type Union struct {
	// At is where the first of the alternatives is listed.
	At           token.Pos
	Given        []cue.Value
	Alternatives []cue.Value
}

// UnionOf returns the alternatives of a value, false if it has none.
func UnionOf(v cue.Value) (u Union, ok bool) {
	defer func() { ok = recover() == nil && ok }() // as in elements
	left := maxFollowed
	parts(&u, v, &left)
	return u, len(u.Alternatives) > 1
}

// parts splits a value in what is given and the alternatives. Of several lists of alternatives
// the first counts: the others are no more than given.
func parts(u *Union, v cue.Value, left *int) {
	if *left--; *left < 0 {
		return
	}
	at := v
	if to, ok := dereferenced(v); ok {
		at = to
	}
	op, args := Expr(at)
	if op == cue.NoOp && len(args) == 1 { // one of which or(LIST) is a part is computed already
		if inner, all := Expr(args[0]); inner == cue.OrOp {
			op, args = inner, all
		}
	}
	switch {
	case op == cue.AndOp:
		for _, a := range args {
			parts(u, a, left)
		}
	case op == cue.OrOp && len(u.Alternatives) == 0:
		for _, a := range args {
			alternatives(u, a, left)
		}
	default:
		u.Given = append(u.Given, at)
	}
}

// alternatives adds an alternative, which may be a name for several.
func alternatives(u *Union, v cue.Value, left *int) {
	if *left--; *left < 0 || len(u.Alternatives) >= maxAlternatives {
		return
	}
	at := v
	if to, ok := dereferenced(v); ok {
		at = to
	}
	op, args := Expr(at)
	if op == cue.CallOp && len(args) == 2 && fmt.Sprint(args[0]) == "or" {
		op, args = cue.OrOp, elements(args[1])
	}
	if op == cue.OrOp && len(args) > 0 {
		for _, a := range args {
			alternatives(u, a, left)
		}
		return
	}
	if len(u.Alternatives) == 0 {
		u.At = v.Pos()
	}
	u.Alternatives = append(u.Alternatives, at)
}

// Structs reports whether all alternatives are structs.
func (u Union) Structs() bool {
	return !slices.ContainsFunc(u.Alternatives, func(a cue.Value) bool { return a.IncompleteKind() != cue.StructKind })
}

// Tag is a field that separates the alternatives of a union.
type Tag struct {
	Name string
	// Values are what it is in the alternatives, as CUE writes them.
	Values []string
	// Given is what is given for it, as CUE writes it; "" if nothing is.
	Given string
}

// Tag returns the field that separates the alternatives: one that is a value in each of them, and
// not the same in all; false if there is none. One that is given comes before others.
func (u Union) Tag() (best Tag, ok bool) {
	for _, name := range Names(u.Alternatives[0]) {
		t := Tag{Name: name}
		for _, a := range u.Alternatives {
			v, isScalar := scalar(a, name)
			if !isScalar {
				t.Values = nil
				break
			}
			if text := Text(v); !slices.Contains(t.Values, text) {
				t.Values = append(t.Values, text)
			}
		}
		if len(t.Values) < 2 {
			continue
		}
		if given, there := u.given(name); there {
			t.Given = Text(given)
		}
		if !ok || best.Given == "" && t.Given != "" {
			best, ok = t, true
		}
	}
	return best, ok
}

// Chosen returns the alternative that is meant by what is given: the one whose values are among
// what is given, or else the one that takes more of it than any other does. false if that is not
// known.
func (u Union) Chosen() (chosen cue.Value, ok bool) {
	defer func() { ok = recover() == nil && ok }() // as in elements
	var fit []cue.Value
	most := 0
	for _, a := range u.Alternatives {
		switch same, other := u.agrees(a); {
		case other:
		case same > most:
			fit, most = []cue.Value{a}, same
		case same == most:
			fit = append(fit, a)
		}
	}
	if len(fit) == 1 && most > 0 {
		return fit[0], true
	}
	least, tie := -1, false
	for _, a := range fit {
		n := wrong(u.With(a))
		if least < 0 || n < least {
			chosen, least, tie = a, n, false
		} else if n == least {
			tie = true
		}
	}
	return chosen, least > 0 && !tie
}

// wrong returns how many values in a value are wrong: of one that is none of several alternatives CUE has
// an error for each.
func wrong(v cue.Value) int {
	at := map[string]bool{}
	for _, e := range errors.Errors(v.Validate()) {
		at[strings.Join(e.Path(), " ")] = true
	}
	return len(at)
}

// agrees compares the values that separate an alternative with those that are given: how many
// are the same, and whether one is another.
func (u Union) agrees(alternative cue.Value) (same int, other bool) {
	for _, name := range Names(alternative) {
		v, isScalar := scalar(alternative, name)
		given, there := u.given(name)
		if !isScalar || !there {
			continue
		}
		if Text(v) != Text(given) {
			return 0, true
		}
		same++
	}
	return same, false
}

// With returns what is given joined with an alternative.
func (u Union) With(alternative cue.Value) cue.Value {
	v := alternative
	for _, g := range u.Given {
		v = v.Unify(g)
	}
	return v
}

// given returns the value that is given for a field, if there is one.
func (u Union) given(name string) (cue.Value, bool) {
	for _, g := range u.Given {
		if v := g.LookupPath(cue.MakePath(cue.Str(name))); v.Exists() && v.IsConcrete() {
			return v, true
		}
	}
	return cue.Value{}, false
}

// Names returns the names of the fields of a struct.
func Names(v cue.Value) (names []string) {
	if !v.Exists() {
		return nil
	}
	it, err := v.Fields()
	for err == nil && it.Next() {
		names = append(names, it.Selector().Unquoted())
	}
	return names
}

// Has reports whether a struct has a field of a name, which may be one that has no value yet.
func Has(v cue.Value, name string) bool {
	for _, sel := range []cue.Selector{cue.Str(name), cue.Str(name).Optional(), cue.Str(name).Required()} {
		if v.LookupPath(cue.MakePath(sel)).Exists() {
			return true
		}
	}
	return false
}

// scalar returns a field of a struct that is one text, number or boolean, and not only by default.
func scalar(v cue.Value, name string) (cue.Value, bool) {
	field := v.LookupPath(cue.MakePath(cue.Str(name)))
	if op, _ := Expr(field); op == cue.OrOp {
		return field, false
	}
	const kinds = cue.StringKind | cue.NumberKind | cue.BoolKind
	return field, field.IsConcrete() && field.Kind()&kinds != 0
}

// Text returns a value as CUE writes it.
func Text(v cue.Value) string {
	b, err := v.MarshalJSON()
	if err != nil {
		return ""
	}
	return string(b)
}

// failure is an error of CUE's.
type failure interface{ errors.Error }

// NoAlternative says that what is given is none of the alternatives of a union: the value of the
// field that separates them, or all of it, is none of those.
type NoAlternative struct {
	failure
	at    []string
	Union Union
	Tag   Tag
	// Given is what is given, if that is no struct.
	Given cue.Value
}

// Path is the data path of what is none of the alternatives.
func (e *NoAlternative) Path() []string { return e.at }

// moved is an error of a value that has no path of its own.
type moved struct {
	failure
	at []string
}

// At returns an error with another data path.
func At(path []string, e errors.Error) errors.Error { return &moved{e, path} }

// IsMoved reports whether an error was given the data path of what it shows in.
func IsMoved(e errors.Error) bool {
	var m *moved
	return errors.As(e, &m)
}

// Path is the data path that the error is of.
func (e *moved) Path() []string { return e.at }

// Unwrap returns what the error comes from.
func (e *moved) Unwrap() error { return stderrors.Unwrap(e.failure) }

// Narrow replaces the errors of values that are none of several alternatives, of which CUE has one
// for each alternative, by those of the alternative that is meant. at returns the value at a data
// path.
func Narrow(errs []errors.Error, at func(path []string) cue.Value) []errors.Error {
	done := map[string]bool{}
	from := 0 // those before are done
	for range maxUnions {
		n := slices.IndexFunc(errs[from:], func(e errors.Error) bool { return isEmpty(e) && !done[strings.Join(e.Path(), " ")] })
		if n < 0 {
			break
		}
		i := from + n
		from = i + 1
		path := errs[i].Path()
		done[strings.Join(path, " ")] = true
		u, ok := UnionOf(at(path))
		var fresh []errors.Error
		if ok && u.Structs() {
			fresh = u.errors(path, errs)
		}
		if len(fresh) == 0 {
			fresh = telling(path, errs)
		}
		if len(fresh) == 0 {
			continue
		}
		replaced := func(e errors.Error) bool { return hasPrefix(e.Path(), path) }
		errs = slices.Clone(errs)
		before := slices.DeleteFunc(errs[:i:i], replaced)
		from = len(before)
		errs = slices.Concat(before, slices.DeleteFunc(errs[i:], replaced), fresh)
	}
	return errs
}

// telling returns those errors of a value with alternatives that are most of what is given: what is not
// allowed, and then what is of another type. It is for where the alternatives are not known. If all are
// of one field, they are those of the alternatives that have it, and none if all alternatives have.
func telling(path []string, errs []errors.Error) []errors.Error {
	var classes [4][]errors.Error
	var first []string
	several := false
	for _, e := range errs {
		if !hasPrefix(e.Path(), path) || isEmpty(e) {
			continue
		}
		several = several || first != nil && !slices.Equal(first, e.Path())
		first = e.Path()
		format, _ := e.Msg()
		class := 1
		switch {
		case notAllowed(e):
			class = 0
		case strings.HasPrefix(format, "conflicting values") && !strings.Contains(format, "mismatched types"):
			class = 2
		case strings.Contains(format, "incompatible list lengths"):
			class = 3 // more is said of the elements
		}
		classes[class] = append(classes[class], e)
	}
	if !several {
		if len(classes[0]) == 0 {
			return nil
		}
		return slices.Concat(classes[2], classes[1])
	}
	for _, c := range classes {
		if len(c) > 0 {
			return c
		}
	}
	return nil
}

// isEmpty reports whether CUE says that all alternatives failed.
func isEmpty(e errors.Error) bool {
	format, _ := e.Msg()
	return strings.Contains(format, "empty disjunction")
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

// errors returns what is wrong with a union at a data path.
func (u Union) errors(path []string, errs []errors.Error) (out []errors.Error) {
	defer func() {
		if recover() != nil { // as in elements
			out = nil
		}
	}()
	tag, tagged := u.Tag()
	if i := slices.IndexFunc(u.Given, func(g cue.Value) bool { return g.IncompleteKind()&cue.StructKind == 0 }); i >= 0 {
		for _, e := range errs {
			if slices.Equal(e.Path(), path) && !isEmpty(e) {
				return []errors.Error{&NoAlternative{failure: e, at: path, Union: u, Tag: tag, Given: u.Given[i]}}
			}
		}
		return nil
	}
	chosen, ok := u.Chosen()
	if !ok {
		of := append(slices.Clone(path), tag.Name)
		for _, e := range errs {
			if tagged && tag.Given != "" && slices.Equal(unquoted(e.Path()), unquoted(of)) {
				return []errors.Error{&NoAlternative{failure: e, at: of, Union: u, Tag: tag}}
			}
		}
		return nil
	}
	with := u.With(chosen)
	own := len(with.Path().Selectors())
	for _, e := range errors.Errors(with.Validate()) {
		at := e.Path()[min(own, len(e.Path())):]
		if notAllowed(e) && !u.gives(at) {
			continue // since what is given is looked at alone, and is closed
		}
		out = append(out, original(&moved{e, slices.Concat(path, at)}, errs))
	}
	return Narrow(out, func(p []string) cue.Value { return Lookup(with, p[min(len(path), len(p)):], "") })
}

// original returns the error of all alternatives that is the same as one of an alternative: it has more
// positions.
func original(e errors.Error, errs []errors.Error) errors.Error {
	format, args := e.Msg()
	text := fmt.Sprintf(format, args...)
	for _, o := range errs {
		format, args := o.Msg()
		if slices.Equal(o.Path(), e.Path()) && fmt.Sprintf(format, args...) == text && !isEmpty(o) {
			return o
		}
	}
	return e
}

// gives reports whether what is given has a value at a data path.
func (u Union) gives(at []string) bool {
	return slices.ContainsFunc(u.Given, func(g cue.Value) bool { return Lookup(g, at, "").Exists() })
}

// notAllowed reports whether CUE says that a struct may not have a field.
func notAllowed(e errors.Error) bool {
	format, _ := e.Msg()
	return strings.Contains(format, "field not allowed")
}

// unquoted returns a data path with labels as they are without quotes.
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

// Lookup returns what stands at a data path of an error in a value. Hidden fields are those of the
// package with the import path.
func Lookup(v cue.Value, at []string, importPath string) cue.Value {
	for _, s := range at {
		var sel cue.Selector
		n, err := strconv.Atoi(s)
		switch {
		case err == nil && n >= 0 && v.LookupPath(cue.MakePath(cue.Index(n))).Exists(): // also of a list with an error
			sel = cue.Index(n)
		default:
			sel = selectorOf(s, importPath)
		}
		if v = v.LookupPath(cue.MakePath(sel)); !v.Exists() {
			return cue.Value{}
		}
	}
	return v
}

// selectorOf returns how a label is looked up, as a data path writes it: with its quotes or without.
func selectorOf(label, importPath string) cue.Selector {
	switch {
	case strings.HasPrefix(label, "_"):
		return cue.Hid(label, importPath)
	case strings.HasPrefix(label, "#"):
		return cue.Def(label)
	}
	if u, err := strconv.Unquote(label); err == nil {
		label = u
	}
	return cue.Str(label)
}
