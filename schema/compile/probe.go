package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/trace"
)

// A template that is written as a function, (#Make & row).jobs, is no field: CUE says nothing of what the row lacks but what
// follows from that in the objects. So the package is evaluated once more with such expressions as fields of their own, in
// which what is required and not given has a path and a place.

// probePrefix begins the names of these fields, which are at the end of the files.
const probePrefix = "_muster_probe"

// probed returns the package with expressions as fields of their own; nil if it has none, or CUE does not take them.
func (b *blaming) probed() *loaded {
	req := b.req
	req.Files = maps.Clone(req.Files)
	n := 0
	for _, file := range b.l.where.own() {
		name := fileNamed(b.req, nameOf(file))
		if !strings.HasSuffix(name, ".cue") || !b.l.where.mine(nameOf(file)) {
			continue
		}
		var text strings.Builder
		for _, expr := range callsIn(file, req.Files[name]) {
			fmt.Fprintf(&text, "\n%s%d: [%s]\n", probePrefix, n, expr)
			n++
		}
		req.Files[name] = slices.Concat(req.Files[name], []byte(text.String()))
	}
	if n == 0 || !b.mayTry() {
		return nil
	}
	if l := loadPackage(req, req.Dir, nil); l.built {
		return l
	}
	return nil
}

// callsIn returns the calls of templates in a file, as elements of a list: each with the clauses around it.
func callsIn(file *ast.File, data []byte) (out []string) {
	text := func(n ast.Node) string {
		from, to := n.Pos().Offset(), n.End().Offset()
		if from < 0 || to > len(data) || from > to {
			return ""
		}
		return string(data[from:to])
	}
	var in func(n ast.Node, clauses string)
	in = func(n ast.Node, clauses string) {
		ast.Walk(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Comprehension:
				all := clauses
				for _, c := range n.Clauses {
					all += text(c) + " "
				}
				in(n.Value, all)
				return false
			case *ast.SelectorExpr:
				p, ok := n.X.(*ast.ParenExpr)
				if !ok {
					return true
				}
				if and, ok := p.X.(*ast.BinaryExpr); ok && and.Op == token.AND {
					out = append(out, clauses+"{"+text(and)+"}")
				}
			}
			return true
		}, nil)
	}
	for _, d := range file.Decls {
		in(d, "")
	}
	return out
}

// inCall returns a mistake of what has no value as one of the required field that is not given to a template which is written
// as a function, if there is one such field.
func (b *blaming) inCall(d schema.Diagnostic) (schema.Diagnostic, bool) {
	if d.Rule != schema.RuleMissingField && d.Rule != schema.RuleNotSet || !b.l.built {
		return d, false
	}
	l := b.probed()
	if l == nil {
		return d, false
	}
	return b.lacks(d, l, trace.NotGivenIn(l.value, probePrefix))
}
