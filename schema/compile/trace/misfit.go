package trace

import (
	"bytes"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

// Misfit is a field that the value of a let clause may not have.
type Misfit struct {
	// At is where it is written.
	At token.Pos
	// Path is the data path, with the name of the let clause first.
	Path []string
	// Value is that of the let clause, and Below is the path in it.
	Value cue.Value
	Below []cue.Selector
}

// maxMisfits bounds how many are returned.
const maxMisfits = 100

// Misfits returns the fields that a closed definition has not in the values of the let clauses of a package, each
// place once. These clauses are evaluated outside of the package, whose value is pkg: those at the top of files, and
// in structs and comprehensions, except where only what is evaluated around them says what they refer to, and those
// of which anything looks at whether they are valid. A field that an expression of the package selects is none of
// these. files are the package's own, by path from the root.
func Misfits(ctx *cue.Context, in *build.Instance, pkg cue.Value, files map[string][]byte) (out []Misfit) {
	defer func() { _ = recover() }() // what CUE fails on here, it has not failed on in the package
	outside := build.NewContext().NewInstance(in.Dir, nil)
	outside.Imports, outside.ImportPath, outside.PkgName, outside.Module = in.Imports, in.ImportPath, in.PkgName, in.Module
	var names []string
	selected := map[string]bool{}
	for _, of := range in.Files {
		ast.Walk(of, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				name, _, _ := ast.LabelName(s.Sel)
				selected[name] = true
			}
			return true
		}, nil)
		data, ok := files[strings.TrimPrefix(of.Filename, "/")]
		if !ok || !bytes.Contains(data, []byte("let ")) {
			continue
		}
		file, err := parser.ParseFile(of.Filename, data)
		if err != nil {
			return nil
		}
		p := &pruning{file: file, names: names, untested: untested(file), kept: map[ast.Node]bool{}}
		p.prune()
		if len(p.names) > len(names) {
			names, outside.Files = p.names, append(outside.Files, file)
		}
	}
	if len(names) == 0 {
		return nil
	}
	v := ctx.BuildInstance(outside, cue.Scope(pkg))
	seen := map[string]bool{}
	for _, e := range errors.Errors(v.Validate()) {
		m, ok := misfit(v, e, names)
		at := m.At.String()
		if ok && !seen[at] && !selected[m.Path[len(m.Path)-1]] && len(out) < maxMisfits {
			seen[at] = true
			out = append(out, m)
		}
	}
	return out
}

// misfit returns what an error says of a field of a let clause.
func misfit(v cue.Value, e errors.Error, names []string) (Misfit, bool) {
	if format, _ := e.Msg(); !strings.Contains(format, "field not allowed") {
		return Misfit{}, false
	}
	at, places := e.Path(), errors.Positions(e)
	if len(places) == 0 {
		return Misfit{}, false
	}
	for i := len(at) - 1; i >= 0; i-- {
		label, err := strconv.Unquote(at[i])
		n, marked := strings.CutPrefix(label, mark)
		if err != nil || !marked {
			continue
		}
		number, err := strconv.Atoi(n)
		if err != nil || number >= len(names) || i == len(at)-1 {
			return Misfit{}, false
		}
		m := Misfit{At: places[0], Path: append([]string{names[number]}, at[i+1:]...), Value: v.LookupPath(cue.MakePath(pathOf(at[:i+1])...))}
		m.Below, m.Value = pathOf(at[i+1:]), cue.Dereference(m.Value)
		return m, m.Value.Exists()
	}
	return Misfit{}, false
}

// pathOf returns a data path of an error.
func pathOf(at []string) (out []cue.Selector) {
	for _, s := range at {
		if n, err := strconv.Atoi(s); err == nil && n >= 0 {
			out = append(out, cue.Index(n))
			continue
		}
		out = append(out, cue.ParsePath(s).Selectors()...)
	}
	return out
}
