package sim

import (
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
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
	if got := serialized(second).Sub(serialized(first)); got != -59*time.Minute {
		t.Errorf("the times of day are %s apart, want -59m", got)
	}
	if got, want := second.UTC().Format(time.RFC3339Nano), "2025-12-31T23:02:00Z"; got != want {
		t.Errorf("the clock reads %s, want %s", got, want)
	}
	if second.Before(first) || !serialized(second).Before(serialized(first)) {
		t.Error("which of two readings is the earlier does not follow from how long the host is up")
	}
}

// TestLeap: a master sees by how much its clock was set forward, once, and nothing
// of what the one before it lived through.
func TestLeap(t *testing.T) {
	t.Parallel()
	var c clock
	now := began
	o := model.NewObserved(c.read(now))
	for _, step := range []struct{ ahead, want time.Duration }{
		{0, 0},
		{time.Hour, time.Hour},
		{time.Hour, 0},
		{time.Minute, 0},
		{time.Minute + time.Second, time.Second},
		{time.Minute + time.Second + time.Second/2, 0},
	} {
		now = now.Add(time.Hour)
		if c.ahead = step.ahead; o.OnResume(time.Time{}, c.read(now)) != step.want {
			t.Errorf("when the clock is set to be ahead by %s, it seems to be set forward by another time than %s", step.ahead, step.want)
		}
	}
	c.ahead = 24 * time.Hour
	if jump := model.NewObserved(c.read(now)).OnResume(time.Time{}, c.read(now.Add(time.Second))); jump != 0 {
		t.Errorf("a new master believes that the clock was set forward by %s", jump)
	}
}
