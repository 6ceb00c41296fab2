package trace

import (
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
)

// notAField is a label that only a struct that takes any has a place for.
const notAField = "muster: no field has this name"

// Unallowed returns the fields that no definition has in what a value in a hidden field of a package is made of, where
// CUE says nothing of them: in structs that a call of matchN or matchIf is to take, which it does not look at while
// a field may come. own reports whether a file is of the package.
func Unallowed(v cue.Value, own func(file string) bool) (out []errors.Error) {
	if sels := v.Path().Selectors(); len(sels) == 0 || sels[0].LabelType() != cue.HiddenLabel {
		return nil
	}
	u := &unallowed{own: own, left: maxWalked}
	u.walk(v, maxDepth)
	return u.found
}

type unallowed struct {
	own   func(file string) bool
	left  int
	found []errors.Error
}

func (u *unallowed) walk(v cue.Value, depth int) {
	defer func() { _ = recover() }() // as in elements: what is found so far is better than nothing
	if u.left--; u.left < 0 || depth == 0 || len(u.found) >= maxErrors {
		return
	}
	if err := v.Err(); err != nil && strings.Contains(err.Error(), "does not satisfy match") {
		u.fields(v)
		return
	}
	it, err := v.Fields()
	for err == nil && it.Next() {
		u.walk(it.Value(), depth-1)
	}
}

// fields notes the fields that the package itself gives a struct and that no other part of it has: each of these is
// closed.
func (u *unallowed) fields(v cue.Value) {
	var given, closed []cue.Value
	for _, part := range Leaves(v) {
		switch op, _ := Expr(part); {
		case op == cue.CallOp:
		case part.IncompleteKind() != cue.StructKind:
			return
		case u.own(strings.TrimPrefix(part.Pos().Filename(), "/")):
			given = append(given, part)
		case !part.Allows(cue.Str(notAField)):
			closed = append(closed, part)
		default:
			return // a definition that takes any
		}
	}
	for _, part := range given {
		it, err := part.Fields()
		for err == nil && it.Next() && len(closed) > 0 {
			if !allowedBy(closed, it.Selector()) {
				at := append(labelsOf(v), nameOf(it.Selector()))
				u.found = append(u.found, &unknown{errors.Newf(it.Value().Pos(), "field not allowed"), at})
			}
		}
	}
}

// unknown says of a field that no definition has it.
type unknown struct {
	failure
	at []string
}

// Path is the data path of the field.
func (e *unknown) Path() []string { return e.at }

// allowedBy reports whether one of some structs has a place for a field.
func allowedBy(closed []cue.Value, field cue.Selector) bool {
	for _, c := range closed {
		if c.Allows(field) {
			return true
		}
	}
	return false
}
