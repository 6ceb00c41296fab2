package nodeagent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// look is one look at a machine, after the time since the one before.
type look struct {
	after time.Duration
	level nodeagent.Level
	shown bool // whether it is listed from then on
}

func TestConditionsDoNotFlap(t *testing.T) {
	t.Parallel()
	const good, between, bad = nodeagent.Good, nodeagent.Between, nodeagent.Bad
	for _, tc := range []struct {
		name  string
		kind  schema.ConditionKind
		looks []look
	}{
		{"at once", schema.ReadOnlyFS, []look{{0, good, false}, {1, bad, true}}},
		{"not for a moment", schema.ClockSkew, []look{{0, bad, false}, {29 * time.Second, bad, false}, {time.Second, bad, true}}},
		{"a spike begins anew", schema.ClockSkew, []look{
			{0, bad, false}, {29 * time.Second, good, false}, {time.Second, bad, false}, {29 * time.Second, bad, false}, {time.Second, bad, true},
		}},
		{"good for a while", schema.DiskPressure, []look{
			{0, bad, true}, {time.Hour, good, true}, {59 * time.Second, good, true}, {time.Second, good, false},
		}},
		{"between is neither", schema.DiskPressure, []look{
			{0, between, false},
			{time.Hour, between, false},
			{1, bad, true},
			{1, between, true},
			{time.Hour, between, true},
			{1, good, true},
			{59 * time.Second, between, true},
			{1, good, true},
			{time.Minute, good, false},
		}},
		{"the clock is set back", schema.ClockSkew, []look{{0, bad, false}, {-time.Hour, bad, false}, {30 * time.Second, bad, true}}},
	} {
		var c nodeagent.Conditions
		now, was := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), false
		for i, l := range tc.looks {
			now = now.Add(l.after)
			changed := c.See(tc.kind, l.level, "so it is", now)
			if shown := len(c.List()) == 1; shown != l.shown || changed != (shown != was) {
				t.Errorf("%s, look %d: shown %t, changed %t: want %t, %t", tc.name, i, shown, changed, l.shown, l.shown != was)
			}
			was = l.shown
		}
	}
}

// A clock is off only by what the way of the messages cannot explain.
func TestClockCondition(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, tc := range []struct {
		ahead, within time.Duration
		want          string
	}{
		{4 * s, 0, ""}, {6 * s, s / 2, "6s behind"}, {-6 * s, s / 2, "6s ahead of"}, {6 * s, 2 * s, ""}, {time.Hour, 20 * s, "1h0m0s behind"},
	} {
		var c nodeagent.Conditions
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		c.SeeClock(tc.ahead, tc.within, now)
		c.SeeClock(tc.ahead, tc.within, now.Add(nodeagent.ReportAfter))
		if got := fmt.Sprint(c.List()); tc.want == "" && got != "[]" || !strings.Contains(got, tc.want) {
			t.Errorf("%v within %v: %s: want %q", tc.ahead, tc.within, got, tc.want)
		}
	}
}

// The runtime is broken after failures in a row, is tried again after a while,
// and one more failure is enough then; a start that works ends it.
func TestBrokenRuntime(t *testing.T) {
	t.Parallel()
	var c nodeagent.Conditions
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	broken := func() bool { return len(c.List()) > 0 }
	for i := range nodeagent.StartFailures - 1 {
		if c.SeeStart("no keeper", now) || broken() {
			t.Fatalf("broken after %d failures", i+1)
		}
	}
	c.SeeStart("", now)
	for range nodeagent.StartFailures {
		c.SeeStart("no keeper", now)
	}
	for _, minutes := range []int{1, 2, 4, 8, 16, 30, 30} {
		hold := time.Duration(minutes) * time.Minute
		if !broken() || !strings.Contains(c.List()[0].String(), "no keeper") {
			t.Fatalf("not broken: %v", c.List())
		}
		if changed, wake := c.Turn(now.Add(hold - 1)); changed || wake != now.Add(hold) {
			t.Fatalf("before %v: changed %t, wakes at %v", hold, changed, wake)
		}
		now = now.Add(hold)
		if changed, wake := c.Turn(now); !changed || !wake.IsZero() || broken() {
			t.Fatalf("after %v: changed %t, wakes at %v", hold, changed, wake)
		}
		if !c.SeeStart("no keeper", now) {
			t.Fatal("retried in vain: not broken")
		}
		if c.SeeStart("no keeper", now) {
			t.Fatal("another failure of what is broken is news")
		}
	}
	if !c.SeeStart("", now) || broken() {
		t.Fatal("broken although a task was started")
	}
	c.SeeStart("no keeper", now)
	if broken() {
		t.Fatal("a failure long ago is counted")
	}
	// A clock that is set back does not make it last.
	for range nodeagent.StartFailures {
		c.SeeStart("no keeper", now)
	}
	if changed, _ := c.Turn(now.Add(-time.Hour)); !changed {
		t.Fatal("held until the clock catches up")
	}
}
