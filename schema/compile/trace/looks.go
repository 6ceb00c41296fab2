package trace

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"

	"github.com/musterhq/muster/schema/compile/terms"
)

// maxEach bounds of how many elements of a list a check is looked at.
const maxEach = 100

// Looking is a check of the data at a path in a package.
type Looking struct {
	// Value returns what stands at a data path of the package, and Context is that of it.
	Value   func(at []string) cue.Value
	Context *cue.Context
	// Library is the value of the package that the check is in, and LibraryPath its import path.
	Library     cue.Value
	LibraryPath string
	// At is the data path of what is checked.
	At    []string
	Check terms.Check
}

// Paths returns the data paths that the check may look at, the nearest first. What comprehensions go through is
// the first with which the check is reached, or else all of it.
func (l Looking) Paths() (all [][]string) {
	reached := l.reached()
	for _, names := range l.Check.Looks {
		for n := len(l.At); n >= l.outermost(); n-- {
			for _, full := range l.each(slices.Concat(l.At[:n], names), reached) {
				if n > 1 || l.Value(full).Exists() { // of a hidden field, a pattern may take any name
					all = append(all, full)
				}
			}
		}
	}
	return all
}

// Object returns the data path of the object, or of the hidden field, that what is checked is in.
func (l Looking) Object() []string { return l.At[:l.outermost()] }

func (l Looking) outermost() int {
	if strings.HasPrefix(l.At[0], "_") || strings.HasPrefix(l.At[0], "#") {
		return 1
	}
	return min(2, len(l.At))
}

// each returns a data path with the names of all that there is in the place of each variable of a comprehension
// in it, or of those that are known to be reached.
func (l Looking) each(full []string, reached map[string][]string) (out [][]string) {
	n := slices.IndexFunc(full, func(name string) bool { _, ok := terms.Each(name); return ok })
	if n < 0 {
		return [][]string{full}
	}
	variable, _ := terms.Each(full[n])
	names := reached[variable]
	if of := l.Value(full[:n]); names == nil && of.Exists() {
		names = Members(of)
	}
	for _, name := range names {
		if len(out) < maxEach {
			out = append(out, l.each(slices.Concat(full[:n], []string{name}, full[n+1:]), reached)...)
		}
	}
	return out
}

// reached returns the label or index of the first of what the comprehensions around the check
// go through where it is reached, by variable; nil if that is not known.
func (l Looking) reached() (out map[string][]string) {
	defer func() { _ = recover() }() // as in elements: then it is not known
	text, variables, names := l.Check.Reached()
	if text == "" {
		return nil
	}
	all, err := l.Context.CompileString(text, cue.Scope(l.scope(names)), cue.ImportPath(l.LibraryPath), cue.InferBuiltins(true)).List()
	if err != nil || !all.Next() {
		return nil
	}
	labels := texts(all.Value())
	if len(labels) != len(variables) {
		return nil
	}
	out = map[string][]string{}
	for i, v := range variables {
		out[v] = labels[i : i+1]
	}
	return out
}

// scope returns a struct with what names stand for where the check is: what is seen first from there, or else what
// its package has. It is without all else, of which something is wrong.
func (l Looking) scope(names []string) cue.Value {
	out := l.Context.CompileString("{...}")
	for _, name := range names {
		v := cue.Value{}
		for n := len(l.At); n >= l.outermost() && !v.Exists(); n-- {
			v = Lookup(l.Value(l.At[:n]), []string{name}, l.LibraryPath)
		}
		if l.Library.Exists() && !v.Exists() {
			v = Lookup(l.Library, []string{name}, l.LibraryPath)
		}
		if v.Exists() {
			out = out.FillPath(cue.MakePath(selectorOf(name, l.LibraryPath)), v)
		}
	}
	return out
}

// Members returns the names of the fields of a struct, or the indexes of the elements of a list.
func Members(v cue.Value) []string {
	var out []string
	for i := range elements(v) {
		out = append(out, strconv.Itoa(i))
	}
	if out == nil {
		return Names(v)
	}
	return out
}

// texts returns the texts and numbers that a list has, as data paths write them; nil if it has others.
func texts(v cue.Value) (out []string) {
	for _, e := range elements(v) {
		text, err := e.String()
		if n, bad := e.Int64(); err != nil && bad == nil {
			text, err = strconv.FormatInt(n, 10), nil
		}
		if err != nil {
			return nil
		}
		out = append(out, text)
	}
	return out
}
