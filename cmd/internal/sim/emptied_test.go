package sim

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// TestEmptied lets anything happen to a cell of services, leaves it alone until machines are
// emptied, and wants it to come to rest. Where the bound is above that of a machine with one large
// task, each seed empties machines; where it is not, few do.
func TestEmptied(t *testing.T) {
	t.Parallel()
	var below atomic.Int64 // tasks that moved where the bound is low
	t.Cleanup(func() {
		if below.Load() < 1 {
			t.Error("with the lower bound no task was moved so that a machine is empty: take a seed that moves some")
		}
	})
	for _, seed := range []uint64{0, 1, 2, 3, 4, 5, 9} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := Emptied(seed, drainSteps)
			w, err := s.Play(nil)
			if err != nil {
				t.Fatal(s.Transcript(nil))
			}
			if s.World.EmptyBelow != emptyPercent {
				below.Add(int64(w.emptying))
			} else if w.emptying < 1 {
				t.Error("no task was moved so that a machine is empty: this tests nothing")
			}
		})
	}
}
