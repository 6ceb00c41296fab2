package link

import (
	"testing"
	"time"
)

// In a small cell each machine is asked as often as configured; in a large one what all
// machines together are asked for is bounded, as long as each reports in time.
func TestPace(t *testing.T) {
	t.Parallel()
	cfg := New(Config{}).cfg
	for sessions, want := range map[int]pace{
		0: {2 * time.Second, 5 * time.Second}, 1: {2 * time.Second, 5 * time.Second}, 2500: {2 * time.Second, 5 * time.Second},
		6000: {3 * time.Second, 12 * time.Second}, 10_000: {5 * time.Second, 20 * time.Second}, 50_000: {5 * time.Second, 30 * time.Second},
	} {
		if got := paceOf(&cfg, sessions); got != want {
			t.Errorf("%d sessions: %v, want %v", sessions, got, want)
		}
	}
	rare := Config{PullEvery: time.Minute, UsageEvery: time.Hour}
	if got, want := paceOf(&rare, 10_000), (pace{time.Minute, time.Hour}); got != want {
		t.Errorf("as configured: %v, want %v", got, want)
	}
}

// Machines that are due at about the same time are asked at the same moment, and none of them
// before its time, or much later.
func TestPaceOfMoments(t *testing.T) {
	t.Parallel()
	p := pace{pull: 5 * time.Second}
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	moments := map[time.Time]bool{}
	for i := range 1000 {
		now := base.Add(time.Duration(i) * time.Millisecond)
		wait := p.wait(now)
		if late := wait - p.pull; late < 0 || late >= 100*time.Millisecond {
			t.Errorf("at %v: waits %v", now, wait)
		}
		moments[now.Add(wait)] = true
	}
	if len(moments) > 11 {
		t.Errorf("1000 machines that are due within a second are asked at %d moments, want 11", len(moments))
	}
	if none := (&pace{pull: 10}); none.wait(base) != 10 { // of a test: too short to be divided
		t.Errorf("waits %v, want 10 ns", none.wait(base))
	}
}

// The pace follows the sessions.
func TestPaceFollowsSessions(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	var all []*session
	for i := range 6000 {
		c := &session{machine: string(rune('a' + i)), epoch: 1, wake: make(chan struct{}, 1)}
		if err := s.register(c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if got := s.pace.Load().pull; got != 3*time.Second {
		t.Errorf("with 6000 sessions machines are asked every %v", got)
	}
	for _, c := range all {
		s.unregister(c)
	}
	if got := s.pace.Load().pull; got != 2*time.Second {
		t.Errorf("when they have gone machines are asked every %v", got)
	}
}
