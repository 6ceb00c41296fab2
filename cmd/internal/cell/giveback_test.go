package cell

import "testing"

// TestGiver: memory is given back once after much work, when the master has come to rest, and not
// more often than there is a collection anyway.
func TestGiver(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	var g giver
	for i, look := range []struct {
		allocated, live uint64 // in MiB
		want            bool
	}{
		{10, 5, false},    // the start
		{300, 50, false},  // a commit
		{600, 200, false}, // goes on
		{610, 200, true},  // rest
		{611, 40, false},  // once
		{620, 40, false},
		{650, 40, false}, // little
		{651, 40, false},
		{680, 40, false},
		{690, 40, true},    // in all as much as is worth it
		{900, 500, false},  // another one, of a large cell
		{910, 500, false},  // of which more is alive than was allocated
		{1180, 500, false}, // and more
		{1195, 500, true},
	} {
		if got := g.due(look.allocated*mib, look.live*mib); got != look.want {
			t.Errorf("look %d, at %d MiB: %v, want %v", i, look.allocated, got, look.want)
		}
	}
}
