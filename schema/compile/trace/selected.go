package trace

import (
	"cuelang.org/go/cue"
)

// SelectedFrom returns what a field of a name is selected from first in the expression that a value is, in what that refers to,
// and in the arguments of templates that are written as functions.
// Indexed is set where the name is computed.
func SelectedFrom(v cue.Value, name string) (from cue.Value, indexed bool) {
	defer func() { _ = recover() }() // as in elements: what is found so far is better than nothing
	left := maxFollowed
	var find func(v cue.Value)
	find = func(v cue.Value) {
		if left--; left < 0 || from.Exists() {
			return
		}
		op, args := Expr(v)
		if op == cue.SelectorOp || op == cue.IndexOp {
			if label, err := args[1].String(); err == nil && label == name {
				from, indexed = args[0], op == cue.IndexOp
				return
			}
		}
		if op == cue.NoOp {
			for _, e := range elements(v) {
				find(e)
			}
			return
		}
		for _, a := range args {
			find(a)
		}
		if to, ok := dereferenced(v); ok && !from.Exists() && to.Pos() != v.Pos() {
			find(to)
		}
	}
	find(v)
	return from, indexed
}

// Parts returns what a value is joined of, through references.
func Parts(v cue.Value) (out []cue.Value) {
	defer func() { _ = recover() }() // as in elements: what is found so far is better than nothing
	left := maxParts
	var note func(cue.Value)
	note = func(v cue.Value) {
		if left--; left < 0 {
			return
		}
		if to, ok := dereferenced(v); ok && to.Pos() != v.Pos() {
			note(to)
			return
		}
		if op, args := Expr(v); op == cue.AndOp {
			for _, a := range args {
				note(a)
			}
			return
		}
		out = append(out, v)
	}
	note(v)
	return out
}
