package compile

import (
	"errors"

	"github.com/musterhq/muster/schema"
)

// ErrNoField says that an object has no such field, set or by default.
var ErrNoField = errors.New("there is no such field")

// Role is what a place does to a value.
type Role string

// The roles.
const (
	Sets     Role = "sets"     // the value stands there
	Defaults Role = "defaults" // what the value is unless it is set
	Limit    Role = "limits"   // what the value may be
	Schema   Role = "schema"   // the default of the schema, which is nowhere in the repository
)

// Contribution is one place that a value comes from.
type Contribution struct {
	Role Role `json:"role"`
	// Position is the zero Position for Schema.
	schema.Position
	Text string `json:"text"` // what is written there, in one line, shortened
}

// FieldSource is a value of an object and where it comes from.
type FieldSource struct {
	Field  string         `json:"field"` // data path in the object
	Value  string         `json:"value"` // as JSON, shortened
	Places []Contribution `json:"places"`
	// Deprecated says what to write, of a field that is set under its former name.
	Deprecated string `json:"deprecated,omitempty"`
}

// question asks a child for the sources of the fields of an object.
type question struct {
	Kind  schema.Kind `json:"kind"`
	Name  string      `json:"name"`
	Field string      `json:"field"` // "" for all
}
