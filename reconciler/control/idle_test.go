package control

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// TestDue: each job's time comes, the first first, and not that of one that is idle no
// more, or until another time.
func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	idle := map[schema.JobName]*idleJob{}
	var d dueJobs
	name := func(i int) schema.JobName { return schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%02d", i)} }
	for i := range 10 {
		for range 1000 { // only the last counts
			idle[name(i)] = &idleJob{until: facts.Until{Monotonic: now.Add(time.Duration(10-i) * time.Minute)}}
			if i%2 == 0 {
				idle[name(i)].until = facts.Until{Wall: now.Add(time.Duration(10-i) * time.Minute)}
			}
			d.add(name(i), idle[name(i)], idle)
		}
	}
	if n := len(d.monotonic) + len(d.wall); n > 3000 {
		t.Errorf("it remembers %d times of 10 jobs", n)
	}
	idle[name(0)] = &idleJob{}
	delete(idle, name(9))
	for at := range 12 {
		u := d.first(idle)
		got := d.pop(now.Add(time.Duration(at)*time.Minute), idle)
		var want []schema.JobName
		if i := 10 - at; i > 0 && i < 9 {
			want = append(want, name(i))
			first := u.Monotonic
			if i%2 == 0 {
				first = u.Wall
			}
			if !first.Equal(now.Add(time.Duration(at) * time.Minute)) {
				t.Errorf("after %d min the next is due at %s", at, first)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d min %v are due, want %v", at, got, want)
		}
	}
}
