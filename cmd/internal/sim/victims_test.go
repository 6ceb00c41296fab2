package sim

import "testing"

// TestWithinSkew: only where a domain surely may have one more task does it count as
// room that a task has left.
func TestWithinSkew(t *testing.T) {
	t.Parallel()
	domains := map[string]bool{"a": true, "b": true, "c": true}
	for _, x := range []struct {
		there, stay map[string]int
		most        int
		is          bool
	}{
		{map[string]int{"a": 1}, map[string]int{"b": 1, "c": 1}, 1, true},
		{map[string]int{"a": 1}, map[string]int{"b": 1}, 1, false}, // ahead of c by two
		{map[string]int{"a": 1}, map[string]int{"b": 1}, 2, true},
		{map[string]int{"a": 2}, map[string]int{"a": 9, "b": 2, "c": 2}, 1, true}, // itself does not count
	} {
		if is := withinSkew("a", x.most, x.there, x.stay, domains); is != x.is {
			t.Errorf("%v beside %v with maxSkew %d: %t, want %t", x.there, x.stay, x.most, is, x.is)
		}
	}
}
