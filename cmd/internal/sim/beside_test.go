package sim

import (
	"fmt"
	"testing"
)

// TestAllocSets lets anything happen to a cell of alloc sets alone, which converges
// often, and wants them to hold together whenever it does.
func TestAllocSets(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := Seeded(seed, 400)
			s.World.Machines, s.World.Jobs = 6, "a/pair,b/pair"
			if _, err := s.Play(nil); err != nil {
				t.Error(s.Transcript(nil))
			}
		})
	}
}
