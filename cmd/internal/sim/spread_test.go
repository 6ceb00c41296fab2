package sim

import (
	"fmt"
	"strings"
	"testing"
)

// drainSteps are the steps of a world in which half of the racks are drained.
const drainSteps = 200

// TestSpread lets anything happen to a cell of services, then drains half of it for a
// while, and wants the tasks to be spread evenly again, by updates and else by repair.
func TestSpread(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := HalfDrained(seed, drainSteps)
			w, err := s.Play(nil)
			if err != nil {
				t.Fatal(s.Transcript(nil))
			}
			least := 2
			if s.World.MovesPerHour > 0 {
				least = 1
			}
			if n := strings.Count(w.History(), "stopped: rebalance"); n < least {
				t.Errorf("%d tasks were moved for the spread: this tests nothing", n)
			}
		})
	}
}
