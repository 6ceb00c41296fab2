package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestValuesOf: a change is to be seen wherever it is in two long values.
func TestValuesOf(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 10)
	for _, test := range []struct{ name, old, next, was, is string }{
		{"short", `"a"`, `"b"`, `"a"`, `"b"`},
		{"added", ``, `"b"`, `none`, `"b"`},
		{"long and new", ``, `"` + long + `"`, `none`, `"` + long[:59] + `…`},
		{"the same", `"` + long + `"`, `"` + long + `"`, `"` + long[:59] + `…`, `"` + long[:59] + `…`},
		{"at the end", `"` + long + `a"`, `"` + long + `b"`, `…` + long[80:] + `a"`, `…` + long[80:] + `b"`},
		{"in the middle", `"` + long + `a` + long + `"`, `"` + long + `b` + long + `"`, `…` + long[80:] + `a` + long[:39] + `…`, `…` + long[80:] + `b` + long[:39] + `…`},
		{"one is longer", `"` + long + `"`, `"` + long + `ü"`, `…` + long[80:] + `"`, `…` + long[80:] + `ü"`},
		{"one is the other's beginning", `["` + long + `"`, `["` + long + `"]`, `…` + long[81:] + `"`, `…` + long[81:] + `"]`},
	} {
		var old json.RawMessage
		if test.old != "" {
			old = json.RawMessage(test.old)
		}
		was, is := valuesOf("x", old, json.RawMessage(test.next))
		if was != test.was || is != test.is {
			t.Errorf("%s:\n%s → %s, want\n%s → %s", test.name, was, is, test.was, test.is)
		}
	}
}
