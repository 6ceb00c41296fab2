package trace

import "cuelang.org/go/cue"

// Expr returns the operation that a value is the result of, and its operands, as cue.Value.Expr does. It returns the value
// as the result of none where CUE panics over the operands, as it does over some that a comprehension has where the
// package is in error.
func Expr(v cue.Value) (op cue.Op, args []cue.Value) {
	defer func() {
		if recover() != nil {
			op, args = cue.NoOp, []cue.Value{v}
		}
	}()
	return v.Expr()
}
