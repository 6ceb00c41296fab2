package intent

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

// TestHoldEvents: a hold is recorded once, and again when it is of other jobs or
// numbers, also if its reason reads the same.
func TestHoldEvents(t *testing.T) {
	t.Parallel()
	held := func(kind schema.GuardKind, allowed, tasks int, jobs ...string) *schema.Held {
		name := schema.GuardName{Kind: kind}
		h := &schema.Held{Allowed: allowed, Guards: []schema.Guard{{Name: name, Tasks: tasks}}}
		for _, j := range jobs {
			h.Jobs = append(h.Jobs, schema.HeldJob{Job: j, Guard: name})
		}
		return h
	}
	cell, job := schema.GuardCell, schema.GuardJob
	for _, tt := range []struct {
		name    string
		was, is *schema.Held
		want    int // events
	}{
		{"the first", nil, held(cell, 0, 20, "u/a"), 1},
		{"the same", held(cell, 0, 20, "u/a"), held(cell, 0, 20, "u/a"), 0},
		{"more tasks", held(cell, 0, 20, "u/a"), held(cell, 0, 21, "u/a"), 1},
		{"more allowed", held(cell, 0, 20, "u/a"), held(cell, 5, 20, "u/a"), 1},
		{"more allowed, and it does not count", held(job, 0, 3, "u/a"), held(job, 5, 3, "u/a"), 0},
		{"another job of as many tasks", held(job, 0, 3, "u/a"), held(job, 0, 3, "u/b"), 1},
		{"over", held(job, 0, 3, "u/a"), nil, 1},
	} {
		if got := holdEvents(tt.was, tt.is); len(got) != tt.want {
			t.Errorf("%s: %d events, want %d: %v", tt.name, len(got), tt.want, got)
		}
	}
}
