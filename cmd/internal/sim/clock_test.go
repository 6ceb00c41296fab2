package sim

import (
	"testing"
	"time"
)

// TestClock holds what package time makes of the readings of a clock that jumps:
// durations between two readings are true, and the time of day is not.
func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	first := c.read(began.Add(time.Minute))
	c.ahead = -time.Hour
	second := c.read(began.Add(2 * time.Minute))
	if got := second.Sub(first); got != time.Minute {
		t.Errorf("a minute passed while the clock jumped, and it reads %s", got)
	}
	if got := told(second).Sub(told(first)); got != -59*time.Minute {
		t.Errorf("the times of day are %s apart, want -59m", got)
	}
	if got, want := second.UTC().Format(time.RFC3339Nano), "2025-12-31T23:02:00Z"; got != want {
		t.Errorf("the clock reads %s, want %s", got, want)
	}
	if second.Before(first) || !told(second).Before(told(first)) {
		t.Error("which of two readings is the earlier is not told by how long the host is up")
	}
}
