package control

import (
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
)

// TestLasts: a job's rest ends when its time has come, and when the clock is set
// back, since what it waits for may be over.
func TestLasts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := idleJob{until: facts.Until{Wall: now.Add(time.Minute)}, left: time.Minute}
	for after, want := range map[time.Duration]bool{0: true, 59 * time.Second: true, time.Minute: false, time.Hour: false, -time.Second: false, -24 * time.Hour: false} {
		if got := r.lasts(now.Add(after)); got != want {
			t.Errorf("a rest of a minute lasts %s after it began: %t, want %t", after, got, want)
		}
	}
	if !(&idleJob{}).lasts(now) {
		t.Error("a rest without an end has ended")
	}
}
