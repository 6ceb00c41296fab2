package trace

import (
	"slices"
	"strings"

	"cuelang.org/go/cue"
)

// maxParts bounds how many parts of a struct are looked at.
const maxParts = 100

// Lacking returns the fields of a name that have no value, among the parameters of a package's objects
// and its hidden fields, each where it is to be given: not in what is only made from a struct that
// lacks it too, nor in one that others complete. own reports whether a file is of the package.
func Lacking(v cue.Value, name string, own func(file string) bool) []Origin {
	w := &walk{name: name, left: maxWalked, unset: true, required: true}
	w.fields(v, nil)
	return w.homes(v, own)
}

// homes returns those of what is found that are where a value is to be given.
func (w *walk) homes(v cue.Value, own func(file string) bool) (out []Origin) {
	of := func(all []Origin) (parts [][]string) {
		for _, o := range all {
			sels := o.Path.Selectors()
			parts = append(parts, writtenParts(v.LookupPath(cue.MakePath(sels[:len(sels)-1]...)), own))
		}
		return parts
	}
	found, given := of(w.found), of(w.given)
	completed := func(p []string) bool {
		return slices.ContainsFunc(given, func(g []string) bool { return includes(g, p) })
	}
	for i, o := range w.found {
		made := slices.ContainsFunc(found, func(p []string) bool {
			return len(p) < len(found[i]) && includes(found[i], p) && !completed(p)
		})
		same := slices.ContainsFunc(found[:i], func(p []string) bool { return len(p) > 0 && slices.Equal(p, found[i]) })
		if !made && !same && !completed(found[i]) {
			out = append(out, o)
		}
	}
	return out
}

// includes reports whether all of some parts, of which there is one at the least, are among others.
func includes(all, parts []string) bool {
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(p string) bool { return !slices.Contains(all, p) })
}

// writtenParts returns the places in files of the package where what a struct is joined from is written,
// sorted.
func writtenParts(v cue.Value, own func(file string) bool) (out []string) {
	for _, part := range Parts(v) {
		at := part.Pos()
		if name := strings.TrimPrefix(at.Filename(), "/"); at.IsValid() && own(name) {
			out = append(out, at.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// unsetElement reports whether an element of a list has no value yet.
func unsetElement(v cue.Value) bool {
	return v.IncompleteKind() == cue.ListKind && slices.ContainsFunc(elements(v), NoValue)
}
