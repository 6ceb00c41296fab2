package trace

import (
	"cuelang.org/go/cue"
	"cuelang.org/go/cue/token"
)

// maxJoined bounds how deep what a value is joined of is taken apart.
const maxJoined = 32

// Leaves returns what a value is joined of.
func Leaves(v cue.Value) []cue.Value { return leaves(v, 0, nil) }

// LeavesByPlace is Leaves with only the first of what is written at one place, as thousands of rows of a table may be
// joined with one definition.
func LeavesByPlace(v cue.Value) []cue.Value { return leaves(v, 0, places{}) }

// places are where expressions are written, and how deep in what is joined. Nil notes none.
type places map[writtenAt]bool

type writtenAt struct {
	at    token.Pos
	depth int
}

// known reports whether there was a value of a place before, and notes that there is.
func (p places) known(v cue.Value, depth int) bool {
	w := writtenAt{v.Pos(), depth}
	if p == nil || !w.at.IsValid() {
		return false
	}
	was := p[w]
	p[w] = true
	return was
}

func leaves(v cue.Value, depth int, seen places) (out []cue.Value) {
	op, all := Expr(v)
	if op != cue.AndOp || depth > maxJoined {
		return []cue.Value{v}
	}
	for _, part := range all {
		if !seen.known(part, depth) {
			out = append(out, leaves(part, depth+1, seen)...)
		}
	}
	return out
}
