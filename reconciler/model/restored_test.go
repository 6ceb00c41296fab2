package model

import (
	"testing"
	"time"
)

// TestRestoreTwice: a cell that is restored again, from the same snapshot or from
// another one of before the first restore, gives no number that it gave after the first time.
func TestRestoreTwice(t *testing.T) {
	t.Parallel()
	taken := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	floor := func(counter uint64, snapshot, now time.Time) uint64 {
		s := NewState("c")
		s.Counter = counter
		restored := NewState("c")
		if err := restored.Apply(Restore(s, snapshot, now)); err != nil {
			t.Fatal(err)
		}
		return restored.Floor()
	}
	const given = 3800 * 60 // in a minute
	first := floor(500, taken, taken.Add(time.Hour))
	for name, second := range map[string]uint64{
		"the same": floor(500, taken, taken.Add(time.Hour+time.Minute)),
		"an older": floor(100, taken.Add(-time.Minute), taken.Add(time.Hour+time.Minute)),
		"a newer":  floor(900, taken.Add(time.Minute), taken.Add(time.Hour+time.Minute)),
	} {
		if second < first+given {
			t.Errorf("restored again from %s snapshot after a minute, the cell begins at %d, and before at %d", name, second, first)
		}
	}
}
