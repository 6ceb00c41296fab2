package compile

import (
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/cut"
)

// mostLeftOut bounds how many structs are left out, each in an evaluation of its own.
const mostLeftOut = 2

// withoutRows returns mistakes without those of libraries, and of what has no value, that are gone once the struct in which
// another mistake of the package is, as a row of a table or an object, is left out.
func withoutRows(req request, l *loaded, found []mistake) []mistake {
	tried := 0
	for i := 0; i < len(found) && len(found) > 1 && tried < mostLeftOut; i++ {
		d := found[i]
		if d.isCertain() || !l.where.mine(d.Path) || !strings.HasSuffix(d.Path, ".cue") {
			continue
		}
		row := structAround(l.where.fileOf(d.Position), d.Position)
		if row == nil {
			continue
		}
		inRow := func(o mistake) bool {
			return o.Path == d.Path && o.Position.Compare(position(row.Pos())) >= 0 && o.Position.Compare(position(row.End())) < 0
		}
		follows := func(o mistake) bool { return !o.isCertain() && !inRow(o) && (!l.where.mine(o.Path) || o.isUnset()) }
		if !slices.ContainsFunc(found, follows) {
			continue
		}
		tried++
		of := req
		of.Files = maps.Clone(req.Files)
		of.Files[d.Path] = cut.Blanked(req.Files[d.Path], row.Pos().Offset(), row.End().Offset())
		left, ok := mistakesOf(of)
		isNew := func(o mistake) bool { // what refers to the row has lost it
			return (o.isCertain() || o.Rule == schema.RuleUndefined) &&
				!slices.ContainsFunc(found, func(d mistake) bool { return d.Position == o.Position && d.Message == o.Message })
		}
		if !ok || slices.ContainsFunc(left, isNew) {
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(found), func(o mistake) bool { return follows(o) && !slices.ContainsFunc(left, o.isAgain) })
		if len(kept) < len(found) {
			found, i = kept, slices.IndexFunc(kept, func(o mistake) bool { return o.Position == d.Position && o.Field == d.Field })
		}
	}
	return found
}

// isUnset reports whether a mistake is that something has no value, or is not there.
func (m mistake) isUnset() bool {
	return m.Rule == schema.RuleNotSet || m.Rule == schema.RuleMissingField || m.Rule == schema.RuleUndefined
}

// structAround returns the innermost field of a file around a position, or at it, that is in another one and whose value is
// more than a word; with the fields around it that have nothing else, and no braces. It is nil if there is none.
func structAround(f *ast.File, at schema.Position) (found *ast.Field) {
	var chain, around *ast.Field // chain is the first of the fields that are written without braces
	ast.Walk(f, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		if position(field.Pos()).Compare(at) > 0 || position(field.End()).Compare(at) <= 0 {
			return false
		}
		if in := valueOf(around); in == nil || in.Lbrace.IsValid() {
			chain = field
		}
		if _, literal := field.Value.(*ast.BasicLit); around != nil && !literal {
			found = chain
		}
		around = field
		return true
	}, nil)
	return found
}

// valueOf returns the struct that a field has as its value, nil if it has none.
func valueOf(f *ast.Field) *ast.StructLit {
	if f == nil {
		return nil
	}
	s, _ := f.Value.(*ast.StructLit)
	return s
}
