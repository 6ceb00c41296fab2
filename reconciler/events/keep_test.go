package events

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// TestTermsOfTwoLogs: two logs that keep what the other appends while it leads have the
// same records, but for those that one gave in its last moments; and no id twice.
func TestTermsOfTwoLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := open(t, Config{Dir: dir}), open(t, Config{Dir: t.TempDir()})
	defer shut(t, b)
	a.Begin(3)
	a.Append([]schema.Event{event(0), event(1)})
	b.Keep(since(t, a, schema.EventQuery{After: b.Last()}))
	a.Append([]schema.Event{event(2)}) // and a dies
	shut(t, a)

	b.Begin(7)
	b.Append([]schema.Event{event(3), event(4)})
	a = open(t, Config{Dir: dir})
	defer shut(t, a)
	all := since(t, b, schema.EventQuery{After: a.Last()})
	a.Keep(all)
	a.Keep(all) // what is here already is not kept again
	const third, seventh = 3 << termShift, 7 << termShift
	want := []schema.EventRecord{{ID: third, Event: event(0)}, {ID: third + 1, Event: event(1)}, {ID: third + 2, Event: event(2)}, {ID: seventh, Event: event(3)}, {ID: seventh + 1, Event: event(4)}}
	if diff := cmp.Diff(want, since(t, a, schema.EventQuery{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(append(want[:2:2], want[3:]...), since(t, b, schema.EventQuery{})); diff != "" {
		t.Error(diff)
	}
	if a.Last() != b.Last() {
		t.Errorf("the newest of one is %d, of the other %d", a.Last(), b.Last())
	}

	// The store was put back: terms count from before, and ids do not.
	b.Begin(5)
	b.Above(seventh + 9)
	b.Append([]schema.Event{event(5)})
	if got := b.Last(); got != seventh+10 {
		t.Errorf("id %d after %d was another's", got, seventh+9)
	}
}

// TestWaitAfterBegin: who waits for more is not woken by ids that nobody gave.
func TestWaitAfterBegin(t *testing.T) {
	t.Parallel()
	l := open(t, Config{Dir: t.TempDir()})
	defer shut(t, l)
	l.Append([]schema.Event{event(0)})
	l.Begin(2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l.Wait(ctx, l.Last()) == nil {
		t.Error("there is nothing, and the wait is over")
	}
	l.Append([]schema.Event{event(1)})
	if err := l.Wait(ctx, 1); err != nil {
		t.Error(err)
	}
}
