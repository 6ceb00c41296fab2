package compile

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/valid"
)

// definitionsOf returns the names of the definitions that a struct has, such as the parameters of a template.
func definitionsOf(v cue.Value) (out []string) {
	it, err := v.Fields(cue.Definitions(true))
	for err == nil && it.Next() {
		if it.Selector().IsDefinition() {
			out = append(out, it.Selector().String())
		}
	}
	return out
}

// isWhole reports whether all of a value has data.
func isWhole(v any) bool {
	switch v := v.(type) {
	case valid.Broken:
		return false
	case map[string]any:
		for _, e := range v {
			if !isWhole(e) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !isWhole(e) })
	}
	return true
}

func sortedKeys(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// computedFrom returns what expressions refer to.
func computedFrom(args []cue.Value) (out []cue.Value) {
	for _, a := range args {
		if o, ok := trace.Referred(a); ok {
			out = append(out, o.Value)
		}
	}
	return out
}

// isOpen reports whether an expression is a list that may have more elements: it says what these may be.
func isOpen(e ast.Expr) bool {
	l, ok := e.(*ast.ListLit)
	if !ok || len(l.Elts) == 0 {
		return false
	}
	_, ok = l.Elts[len(l.Elts)-1].(*ast.Ellipsis)
	return ok
}

// places are positions in files.
type places map[schema.Position]bool

// has reports whether CUE's error is of one of several places, among others.
func (p places) has(e errors.Error) bool {
	return len(p) > 0 && slices.ContainsFunc(errors.Positions(e), func(at token.Pos) bool { return p[position(at)] })
}

// without returns errors without those of several places, and without what CUE says of alternatives because of these.
func (p places) without(errs []errors.Error) []errors.Error {
	if len(p) == 0 {
		return errs
	}
	paths := map[string]bool{}
	for _, e := range errs {
		if p.has(e) {
			paths[fieldPath(e.Path())] = true
		}
	}
	return slices.DeleteFunc(errs, func(e errors.Error) bool {
		return p.has(e) || paths[fieldPath(e.Path())] && emptyDisjunction.MatchString(errorText(e))
	})
}

// addAround adds all that the top-level field of a position has: it lacks a name, so what it has is not known.
func (p places) addAround(files []*ast.File, at token.Pos) {
	for _, f := range files {
		for _, d := range f.Decls {
			if d.Pos().Filename() != at.Filename() || at.Offset() < d.Pos().Offset() || at.Offset() > d.End().Offset() {
				continue
			}
			ast.Walk(d, func(n ast.Node) bool {
				p[position(n.Pos())] = true
				return true
			}, nil)
		}
	}
}

// withoutFollowing takes from the errors of a package those that follow from what is wrong with a library by itself,
// such as a default of another type than the schema wants, and returns what the package waits for then.
func (l *loaded) withoutFollowing() (theirs []mistake) {
	if !l.built {
		return nil
	}
	for _, in := range slices.Backward(instances(l.inst)[1:]) { // what others import first
		dir := strings.TrimPrefix(in.Dir, "/")
		if lax.IsDir(dir) || inPkg(dir) || !l.concerns(dir) {
			continue
		}
		faults := places{}
		for _, e := range errors.Errors(l.context.BuildInstance(in).Validate()) {
			if ofTemplate(e) {
				continue
			}
			for _, at := range errors.Positions(e) {
				if pos := position(at); path.Dir(pos.Path) == dir {
					faults[pos] = true
				}
			}
			if text := errorText(e); unresolved.MatchString(text) || undefined.MatchString(text) {
				faults.addAround(in.Files, e.Position())
			}
		}
		n := len(l.errs)
		l.errs = faults.without(l.errs)
		if n == len(l.errs) {
			continue
		}
		if l.faulty == nil {
			l.faulty = places{}
		}
		maps.Copy(l.faulty, faults)
		theirs = append(theirs, mistake{Diagnostic: schema.Diagnostic{
			Severity: schema.Error, Rule: schema.RuleDependency, Position: schema.Position{Path: path.Join(dir, path.Base(in.Files[0].Filename)), Line: 1, Column: 1},
			Message: fmt.Sprintf("depends on %s, which does not compile", dir),
		}})
	}
	return theirs
}

// concerns reports whether CUE's errors name a place in a directory.
func (l *loaded) concerns(dir string) bool {
	return slices.ContainsFunc(l.errs, func(e errors.Error) bool {
		return slices.ContainsFunc(errors.Positions(e), func(at token.Pos) bool { return path.Dir(position(at).Path) == dir })
	})
}

// atDefaults moves what is said of a reference to the default that it has its value of, if that is what is wrong.
func (l *loaded) atDefaults(found []mistake) []mistake {
	for i := range found {
		m := &found[i]
		if m.Rule != schema.RuleWrongType && m.Rule != schema.RuleOutOfRange {
			continue
		}
		at := m.Position
		for _, f := range allFiles(l.inst) {
			if strings.TrimPrefix(f.Filename, "/") != at.Path {
				continue
			}
			ast.Walk(f, func(n ast.Node) bool {
				if e := valueAtPlace(n, at); e != nil {
					if lit := defaultOf(e); lit != nil && (lit.Kind == token.STRING || m.Rule == schema.RuleOutOfRange) {
						m.Position = position(lit.Pos())
					}
				}
				return true
			}, nil)
		}
	}
	return found
}

// valueAtPlace returns what a field or a let clause has its value of, if what is said is at that; nil if it is not.
func valueAtPlace(n ast.Node, at schema.Position) ast.Expr {
	switch n := n.(type) {
	case *ast.Field:
		if n.Value != nil && position(n.Value.Pos()) == at {
			return declaration(n.Value)
		}
	case *ast.LetClause:
		if position(n.Pos()) == at {
			return n.Expr
		}
	}
	return nil
}

// defaultOf returns the literal that is the default of several values; nil if there is none.
func defaultOf(e ast.Expr) *ast.BasicLit {
	for {
		b, ok := e.(*ast.BinaryExpr)
		if !ok || b.Op != token.OR {
			return marked(e)
		}
		if lit := marked(b.Y); lit != nil {
			return lit
		}
		e = b.X
	}
}

// marked returns a literal with the mark of a default.
func marked(e ast.Expr) *ast.BasicLit {
	u, ok := e.(*ast.UnaryExpr)
	if !ok || u.Op != token.MUL {
		return nil
	}
	lit, _ := u.X.(*ast.BasicLit)
	return lit
}

// declaration returns what a reference stands for, as it is written in the file; nil if that is not known.
func declaration(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.Ident:
		if let, ok := e.Node.(*ast.LetClause); ok {
			return cmp.Or(declaration(let.Expr), let.Expr)
		}
		to, _ := e.Node.(ast.Expr)
		return to
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(e.Sel)
		in, ok := declaration(e.X).(*ast.StructLit)
		if err != nil || !ok {
			return nil
		}
		for _, d := range in.Elts {
			if f, ok := d.(*ast.Field); ok && lax.Label(f) == name {
				return f.Value
			}
		}
	}
	return nil
}
