package compile

import (
	"iter"

	"cuelang.org/go/cue/ast"

	"github.com/musterhq/muster/schema"
)

// spans are where the values of fields begin and end, by file, in the order in which they are written.
type spans map[string][]span

type span struct {
	from, to schema.Position
	field    *ast.Field
}

func (s spans) add(f *ast.Field) {
	from := position(f.Value.Pos())
	s[from.Path] = append(s[from.Path], span{from, position(f.Value.End()), f})
}

// around yields the fields whose value a position lies in, the outer ones first, with where the value begins.
func (s spans) around(at schema.Position) iter.Seq2[schema.Position, *ast.Field] {
	return func(yield func(schema.Position, *ast.Field) bool) {
		for _, in := range s[at.Path] {
			if in.from.Compare(at) <= 0 && at.Compare(in.to) <= 0 && !yield(in.from, in.field) {
				return
			}
		}
	}
}
