package reconciler

import (
	"testing"
	"time"
)

// TestAhead: a wait is over at its end, and when the clock was set back behind
// its beginning.
func TestAhead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for left, want := range map[time.Duration]bool{
		-time.Second: false, 0: false, time.Nanosecond: true, retryCap: true, 2 * retryCap: true, 2*retryCap + 1: false, 24 * time.Hour: false,
	} {
		if got := ahead(now, now.Add(left), retryCap); got != want {
			t.Errorf("a wait of at most %s with %s left goes on: %t, want %t", retryCap, left, got, want)
		}
	}
	if ahead(now, time.Time{}, retryCap) {
		t.Error("a wait that was never begun goes on")
	}
}
