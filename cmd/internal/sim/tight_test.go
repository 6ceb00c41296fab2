package sim

import (
	"fmt"
	"sync"
	"testing"
)

// tightActions returns how many actions a history has in which room is scarce, beside
// others of so many steps: enough for tasks to wait for long, and few when it is long.
func tightActions(steps int) int { return 40 + steps/50 }

// tightShare is of how many seeds one has such a history: it takes as long as several others.
const tightShare = 5

// TestTight has jobs ask for more than there is, for a long time.
func TestTight(t *testing.T) {
	t.Parallel()
	var once sync.Once
	for seed := *first; seed < *first+uint64(*seeds); seed += tightShare { //nolint:gosec // a count
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := Tight(seed, tightActions(*steps))
			if _, err := s.Play(nil); err != nil {
				t.Errorf("%v", err)
				once.Do(func() { shorten(t, s, fmt.Sprintf("tight-%d", seed)) })
			}
		})
	}
}
