package compile

import (
	"errors"
	"slices"

	"github.com/musterhq/muster/schema"
)

var (
	// ErrNoField says that an object has no such field, set or by default.
	ErrNoField = errors.New("there is no such field")
	// ErrNoObject says that a package does not declare such an object.
	ErrNoObject = errors.New("there is no such object")
	// ErrUnread says that nothing is known of what a package declares, since CUE cannot read it.
	ErrUnread = errors.New("the package cannot be read")
	// ErrHidden says that an object is not shown, since it has a secret in clear.
	ErrHidden = errors.New("it has a secret in clear")
)

// unasked are why a child has no answer to a question, by what it says.
var unasked = map[string]error{"object": ErrNoObject, "package": ErrUnread, "secret": ErrHidden}

// Role is what a place does to a value.
type Role string

// The roles.
const (
	Sets     Role = "sets"     // the value stands there
	Defaults Role = "defaults" // what the value is unless it is set
	Limit    Role = "limits"   // what the value may be
	Refers   Role = "refers"   // the value is that of another, whose places follow
	Used     Role = "used"     // the value is computed from what stands there
	Schema   Role = "schema"   // nothing sets it: it is the default of the schema, which declares the field there
)

// Contribution is one place that a value comes from.
type Contribution struct {
	Role Role `json:"role"`
	// Position is the zero Position if it is not known, which may be for Schema.
	schema.Position
	Text string `json:"text"` // what is written there, in one line, shortened
	// Field is the data path, within what is written there, of the value, if it is passed on with what holds it.
	Field string `json:"field,omitempty"`
}

// FieldSource is a value of an object and where it comes from.
type FieldSource struct {
	Field  string         `json:"field"` // data path in the object
	Value  string         `json:"value"` // as JSON, shortened; "" if it has none, since something is wrong
	Places []Contribution `json:"places"`
	// Error is what is wrong with the value.
	Error string `json:"error,omitempty"`
	// Hint says more of the error, such as where the check stands that the value does not pass.
	Hint string `json:"hint,omitempty"`
	// Deprecated says what to write, of a field that is set under its former name.
	Deprecated string `json:"deprecated,omitempty"`
}

// Explanation is where the values of an object come from.
type Explanation struct {
	Fields []FieldSource
	// User is that of the object, "" if that is not known.
	User string
	// Diagnostics are the errors of the package, if they may have to do with the object.
	Diagnostics []schema.Diagnostic
}

// Others returns the errors that no field has as its own: what they are about is not explained.
func (e *Explanation) Others() (out []schema.Diagnostic) {
	for _, d := range e.Diagnostics {
		if !slices.ContainsFunc(e.Fields, func(s FieldSource) bool { return s.Error == d.Message }) {
			out = append(out, d)
		}
	}
	return out
}

// question asks a child for the sources of the fields of an object.
type question struct {
	Kind  schema.Kind `json:"kind"`
	Name  string      `json:"name"`
	Field string      `json:"field"` // "" for all
}
