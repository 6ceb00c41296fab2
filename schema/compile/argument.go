package compile

import (
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

// What is wrong with a value shows in all that takes it.

// ofArgument is what CUE says of a function, or of text with values in it, for what is wrong with a
// value that it is given.
var ofArgument = lazyregexp.New(`^(?:(?:error in call to [^ :]+|invalid interpolation): )+((?:[^ :."]+|"[^"]*")(?:\.(?:[^ :."]+|"[^"]*"))+): (.*)$`)

// argument returns the data path of what is wrong, and what it is, if text is what CUE says of what
// takes the value, at a path; a nil path if not.
func argument(text string, path []string) (at []string, what string) {
	m := ofArgument.FindStringSubmatch(qualifier.ReplaceAllString(text, "$1"))
	if m == nil {
		return nil, ""
	}
	at = pathLabel.FindAllString(m[1], -1)
	if !strings.HasPrefix(at[0], "_") && valid.Of(schema.Kind(at[0])) == nil || slices.Equal(at, path) {
		return nil, ""
	}
	return at, m[2]
}

// qualifier is what CUE writes behind the name of a package that is imported.
var qualifier = lazyregexp.New(`([#_a-zA-Z0-9.]+)\([^ ()]+@v[0-9]+\)`)

var pathLabel = lazyregexp.New(`[^."]+|"[^"]*"`)
