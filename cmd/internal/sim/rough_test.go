package sim

import (
	"fmt"
	"sync"
	"testing"
)

// roughShare is how many steps of the other histories an action of a rough one stands
// for: it takes as long.
const roughShare = 20

// TestRough has machines come and go for a long time.
func TestRough(t *testing.T) {
	t.Parallel()
	var once sync.Once
	for seed := *first; seed < *first+uint64(*seeds); seed++ { //nolint:gosec // a count
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := Rough(seed, *steps/roughShare)
			if _, err := s.Play(nil); err != nil {
				t.Errorf("%v", err)
				once.Do(func() { shorten(t, s, fmt.Sprintf("rough-%d", seed)) })
			}
		})
	}
}
