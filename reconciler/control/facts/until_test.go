package facts

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
		-time.Second: false, 0: false, time.Nanosecond: true, RetryCap: true, 2 * RetryCap: true, 2*RetryCap + 1: false, 24 * time.Hour: false,
	} {
		if got := Ahead(now, now.Add(left), RetryCap); got != want {
			t.Errorf("a wait of at most %s with %s left goes on: %t, want %t", RetryCap, left, got, want)
		}
	}
	if Ahead(now, time.Time{}, RetryCap) {
		t.Error("a wait that was never begun goes on")
	}
}

// Times of day are in UTC, with the date of another day.
func TestSay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 23, 30, 0, 0, time.FixedZone("west", -3600)) // the third in UTC
	for want, in := range map[string]time.Duration{
		"00:31:05Z":            65 * time.Second,
		"23:30:00Z":            23 * time.Hour,
		"2026-01-04T00:30:00Z": 24 * time.Hour,
		"2026-01-02T23:30:00Z": -time.Hour,
	} {
		if got := (Clock{Now: now}).Say(now.Add(in)); got != want {
			t.Errorf("in %v: %s, want %s", in, got, want)
		}
	}
}
