package schema

import "strings"

// GuardKind is a word for what a guard counts.
type GuardKind string

// The kinds. Those of a cell and of a tenant hold removals for their number of
// tasks, so that a trailer lets them go; the others hold single jobs.
const (
	GuardCell      GuardKind = "cell"
	GuardTenant    GuardKind = "tenant"    // Of is its name
	GuardDirectory GuardKind = "directory" // Of is one that is not taken, to which jobs may have been moved
	GuardJob       GuardKind = "job"       // jobs that say prune: false
)

// GuardName names a guard of a cell. The zero GuardName is none. Its text, also in
// JSON, is the kind, and behind a space what it is of: "cell", "tenant shop".
type GuardName struct {
	Kind GuardKind
	Of   string // "" for kinds of which a cell has one guard
}

// Counts reports whether a guard holds for the number of tasks.
func (g GuardName) Counts() bool { return g.Kind == GuardCell || g.Kind == GuardTenant }

// String returns the text of g, "" for none.
func (g GuardName) String() string {
	if g.Of == "" {
		return string(g.Kind)
	}
	return string(g.Kind) + " " + g.Of
}

// Compare orders guards by their text.
func (g GuardName) Compare(o GuardName) int { return strings.Compare(g.String(), o.String()) }

// MarshalText returns the text of g.
func (g GuardName) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText takes any text, as a later release may know other kinds.
func (g *GuardName) UnmarshalText(text []byte) error {
	kind, of, _ := strings.Cut(string(text), " ")
	*g = GuardName{GuardKind(kind), of}
	return nil
}
