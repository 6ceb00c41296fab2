package trace

import (
	"cuelang.org/go/cue"
	"cuelang.org/go/cue/token"
)

// Joined returns what a value is joined of, and of what is written at one place only the first, as thousands of
// rows of a table may be joined with one definition.
func Joined(v cue.Value) []cue.Value { return alike{}.leaves(v, 0) }

// alike are the expressions that were seen in a value: where they are written, and how deep in what is joined.
type alike map[writtenAt]bool

type writtenAt struct {
	at    token.Pos
	depth int
}

func (seen alike) leaves(v cue.Value, depth int) (out []cue.Value) {
	op, all := v.Expr()
	if op != cue.AndOp || depth > maxDepth {
		return []cue.Value{v}
	}
	for _, part := range all {
		w := writtenAt{part.Pos(), depth}
		if w.at.IsValid() && seen[w] {
			continue
		}
		seen[w] = true
		out = append(out, seen.leaves(part, depth+1)...)
	}
	return out
}
