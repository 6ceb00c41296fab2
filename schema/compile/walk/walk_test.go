package walk_test

import (
	"testing"

	"cuelang.org/go/cue/parser"

	"github.com/musterhq/muster/schema/compile/walk"
)

// TestFind finds the fields at a path, and none at an empty one: some errors of CUE have no path.
func TestFind(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile("x.cue", "a: b: 1\na: {b: 2, c: 3}\nfor k in [1] {a: b: k}\n")
	if err != nil {
		t.Fatal(err)
	}
	for want, at := range map[int][]string{0: nil, 3: {"a", "b"}, 1: {"a", "c"}} {
		if got := len(walk.Find(f.Decls, at)); got != want {
			t.Errorf("%d fields are found at %q, want %d", got, at, want)
		}
	}
}
