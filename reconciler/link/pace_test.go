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
		0: {2 * time.Second, 5 * time.Second}, 1: {2 * time.Second, 5 * time.Second}, 4000: {2 * time.Second, 5 * time.Second},
		6000: {3 * time.Second, 6 * time.Second}, 10_000: {5 * time.Second, 10 * time.Second}, 50_000: {5 * time.Second, 30 * time.Second},
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
