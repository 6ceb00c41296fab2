package sim

import (
	"fmt"
	"testing"
)

// TestEmptied lets anything happen to a cell of services, leaves it alone until machines are
// emptied, and wants it to come to rest.
func TestEmptied(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := Emptied(seed, drainSteps)
			w, err := s.Play(nil)
			if err != nil {
				t.Fatal(s.Transcript(nil))
			}
			if s.World.EmptyBelow == emptyPercent && w.emptying < 1 {
				t.Error("no task was moved so that a machine is empty: this tests nothing")
			}
		})
	}
}
