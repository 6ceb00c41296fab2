package placement_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
)

// TestFits: an ask fits where a machine has room, or, with eviction, where tasks
// of lower priority could make some; and asking places nothing.
func TestFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := placement.Options{Preempt: true}
		s := c.snapshot(o)
		for _, a := range c.asks {
			if rapid.IntRange(0, 3).Draw(t, "on") == 0 {
				a.On = "m0"
			}
			f := c.follower(o)
			room := len(f.feasible(a)) > 0
			_, some := f.cheapest(a, nil)
			if got := s.Fits(a, false); got != room {
				t.Fatalf("%v fits: %t, want %t", a.Name, got, room)
			}
			if got := s.Fits(a, true); got != (room || some) {
				t.Fatalf("%v fits with eviction: %t, want %t", a.Name, got, room || some)
			}
		}
		want, got := c.snapshot(o).Describe(), s.Describe()
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("asking has changed %q to %q", want[i], got[i])
			}
		}
	})
}
