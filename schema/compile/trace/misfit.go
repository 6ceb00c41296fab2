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

// Lets are the values of the let clauses of a package.
type Lets struct {
	// Instance and Value hold them all, under paths that no file has.
	Instance *build.Instance
	Value    cue.Value
	// Misfits are the fields in them that a closed definition has not, each place once.
	Misfits []Misfit
	// Errors is what else is wrong with them.
	Errors []errors.Error
	names  []string
}

// Path returns the data path of an error, with the name of a let clause first; false if it is of none.
func (l *Lets) Path(at []string) ([]string, bool) {
	i, name := l.marked(at)
	return append([]string{name}, at[i+1:]...), name != ""
}

// marked returns which label of a path stands for a let clause, and the name of that; "" if none does.
func (l *Lets) marked(at []string) (int, string) {
	for i := len(at) - 1; i >= 0; i-- {
		label, err := strconv.Unquote(at[i])
		n, marked := strings.CutPrefix(label, mark)
		if err != nil || !marked {
			continue
		}
		if number, err := strconv.Atoi(n); err == nil && number < len(l.names) && i < len(at)-1 {
			return i, l.names[number]
		}
		break
	}
	return -1, ""
}

// LetsOf evaluates the let clauses of a package. These are evaluated outside of the package, whose value is pkg: those at the top of files, and
// in structs and comprehensions, except where only what is evaluated around them says what they refer to, and those
// of which anything looks at whether they are valid. A field that an expression of the package selects is no
// misfit. files are the package's own, by path from the root.
func LetsOf(ctx *cue.Context, in *build.Instance, pkg cue.Value, files map[string][]byte) (out Lets) {
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
			return out
		}
		p := &pruning{file: file, names: names, untested: untested(file), kept: map[ast.Node]bool{}}
		p.prune()
		if len(p.names) > len(names) {
			names, outside.Files = p.names, append(outside.Files, file)
		}
	}
	if len(names) == 0 {
		return out
	}
	all := Lets{Instance: outside, Value: ctx.BuildInstance(outside, cue.Scope(pkg)), names: names}
	seen := map[string]bool{}
	for _, e := range errors.Errors(all.Value.Validate()) {
		m, ok := all.misfit(e)
		at := m.At.String()
		switch {
		case !ok:
			all.Errors = append(all.Errors, e)
		case !seen[at] && !selected[m.Path[len(m.Path)-1]] && len(all.Misfits) < maxMisfits:
			seen[at] = true
			all.Misfits = append(all.Misfits, m)
		}
	}
	return all
}

// misfit returns what an error says of a field of a let clause.
func (l *Lets) misfit(e errors.Error) (Misfit, bool) {
	format, _ := e.Msg()
	at, places := e.Path(), errors.Positions(e)
	i, name := l.marked(at)
	if !strings.Contains(format, "field not allowed") || len(places) == 0 || name == "" {
		return Misfit{}, false
	}
	m := Misfit{At: places[0], Path: append([]string{name}, at[i+1:]...), Value: l.Value.LookupPath(cue.MakePath(pathOf(at[:i+1])...))}
	m.Below, m.Value = pathOf(at[i+1:]), cue.Dereference(m.Value)
	return m, m.Value.Exists()
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
