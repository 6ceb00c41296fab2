package schema

import "strings"

// betweenNested stands between the two attributes of a nested spread, and between the values that a
// machine has of them: together they are an attribute as others are. No label has it.
const betweenNested = "\x00"

// Nested returns the attribute whose values are the domains of the second one within those of
// the first, and the value of that of a machine from its values of these.
func Nested(attribute, then string) string { return attribute + betweenNested + then }

// Unnest returns the attributes, or values, of which Nested has made one; false if it has not.
func Unnest(nested string) (attribute, then string, ok bool) {
	return strings.Cut(nested, betweenNested)
}
