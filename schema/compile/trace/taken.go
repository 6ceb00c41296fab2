package trace

import (
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
)

// maxTaken bounds how many structs that objects are taken from are looked at.
const maxTaken = 1000

// Taken are structs that a package takes whole objects from, as job: m.job does. What is wrong with such a struct
// is wrong with the object, but CUE says so only of a struct in a field that is no definition.
type Taken struct {
	// Definitions are the data paths of those in definitions of the package.
	Definitions [][]string
	// Lets are those of let clauses, which have no data path.
	Lets []Let
}

// Let is a struct of a let clause.
type Let struct {
	Value cue.Value
	// Errors are what is wrong with it, at data paths in it. At is how CUE calls it.
	Errors []errors.Error
	At     []string
	// By is the data path of the first that is taken from it.
	By []string
}

// TakenBy returns the structs that the objects in some top level fields of a package are taken from. Structs of let
// clauses are among them if something is wrong with them.
// own reports whether a file is of the package.
func TakenBy(pkg cue.Value, kinds []string, own func(file string) bool) Taken {
	t := &taking{pkg: pkg, own: own, left: maxFollowed * maxFollowed, seen: map[cue.Value]bool{}}
	for _, kind := range kinds {
		v := pkg.LookupPath(cue.MakePath(cue.Str(kind)))
		if !v.Exists() {
			continue
		}
		it, err := v.Fields()
		for err == nil && it.Next() {
			t.by = []string{kind, nameOf(it.Selector())}
			t.follow(it.Value(), maxDepth)
		}
		t.by = []string{kind}
		t.follow(v, maxDepth)
	}
	return t.found
}

type taking struct {
	pkg   cue.Value
	own   func(file string) bool
	by    []string // what is followed
	left  int
	seen  map[cue.Value]bool
	found Taken
}

// follow notes what a value is selected from, and what that is selected from.
func (t *taking) follow(v cue.Value, depth int) {
	defer func() { _ = recover() }() // as in elements: what is found so far is better than nothing
	if t.left--; t.left < 0 || depth == 0 {
		return
	}
	op, args := v.Expr()
	switch op {
	case cue.AndOp:
		for _, a := range args {
			t.follow(a, depth-1)
		}
	case cue.SelectorOp, cue.IndexOp:
		if inner, _ := args[0].Expr(); inner != cue.AndOp { // else it is a call of a template: see Arguments
			t.note(args[0])
			t.follow(args[0], depth-1)
		}
		if to, ok := dereferenced(v); ok && to.Pos() != v.Pos() {
			t.follow(to, depth-1)
		}
	}
}

// note adds a struct that something is selected from.
func (t *taking) note(ref cue.Value) {
	v, ok := dereferenced(ref)
	if !ok || t.seen[v] || len(t.seen) >= maxTaken || v.IncompleteKind() != cue.StructKind && v.Err() == nil {
		return
	}
	t.seen[v] = true
	if at := v.Path(); at.Err() == nil {
		sels := at.Selectors()
		here := t.pkg.LookupPath(at).Pos() == v.Pos()
		if here && len(sels) > 0 && sels[0].IsDefinition() {
			t.found.Definitions = append(t.found.Definitions, labelsOf(v))
		}
		if clause := len(sels) == 1 && !sels[0].IsDefinition() && t.own(strings.TrimPrefix(v.Pos().Filename(), "/")); here || !clause {
			return // it is not of a let clause, which CUE gives a name as a path
		}
	}
	errs := errors.Errors(v.Validate())
	if len(errs) == 0 || len(t.found.Lets) >= maxErrors {
		return
	}
	l := Let{Value: v, By: t.by}
	for _, e := range errs {
		path := unquoted(e.Path())
		n := above(v, path)
		if n > len(l.At) {
			l.At = path[:n]
		}
		l.Errors = append(l.Errors, &moved{e, path[n:]})
	}
	t.found.Lets = append(t.found.Lets, l)
}

// above returns how many labels of the data path of an error are those of what a struct lies in: CUE names a let clause
// like a field.
func above(v cue.Value, path []string) int {
	for n := range path {
		end := n
		for end < len(path) && !strings.HasPrefix(path[end], "_") {
			end++
		}
		if end > n && Lookup(v, path[n:end], "").Exists() || end == n {
			return n
		}
	}
	return len(path)
}

// Below returns an error of a struct with the data path that it has if the struct is at a path.
func Below(at []string, e errors.Error) errors.Error { return &moved{e, slices.Concat(at, e.Path())} }
