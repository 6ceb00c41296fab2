package schema

import "slices"

// MaxContent is how many images and packages a machine says at most that it holds: those that
// were used last.
const MaxContent = 256

// ContentChange is what a machine holds now, whole and ready, of images and packages, by the
// digests of Content, beside what it said before. Both lists are sorted.
type ContentChange struct {
	Whole   bool // what it said before does not count
	Added   []Digest
	Removed []Digest
}

// ChangeOfContent returns what has changed from was to is, which are sorted.
func ChangeOfContent(was, is []Digest) ContentChange {
	return ContentChange{Added: without(is, was), Removed: without(was, is)}
}

// without returns those of a that b does not have; both are sorted.
func without(a, b []Digest) []Digest {
	var out []Digest
	for _, d := range a {
		if _, found := slices.BinarySearch(b, d); !found {
			out = append(out, d)
		}
	}
	return out
}

// Apply returns what a machine holds, sorted, that held was; false if that is more than
// MaxContent.
func (c *ContentChange) Apply(was []Digest) ([]Digest, bool) {
	var out []Digest
	if !c.Whole {
		out = without(was, c.Removed)
	}
	out = append(out, c.Added...)
	slices.Sort(out)
	out = slices.Compact(out)
	return out, len(out) <= MaxContent
}
