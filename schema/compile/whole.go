package compile

import (
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"

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
