package linkpb

import (
	"testing"
	"time"
)

// The reckoning finds the offset that there is, as long as both ways take
// equally long, and says how far it is off when they do not.
func TestClockOffset(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name                  string
		offset, there, back   time.Duration
		held                  time.Duration
		wantAhead, wantWithin time.Duration
	}{
		{"the same", 0, 0, 0, 0, 0, 0},
		{"master ahead", 7 * time.Second, time.Second, time.Second, 2 * time.Second, 7 * time.Second, time.Second},
		{"master behind", -7 * time.Second, 0, 0, time.Hour, -7 * time.Second, 0},
		{"slow way there", 0, 4 * time.Second, 0, 0, 2 * time.Second, 2 * time.Second},
		{"slow way back", 0, 0, 4 * time.Second, 0, -2 * time.Second, 2 * time.Second},
	} {
		came := at.Add(tc.there + tc.offset) // by the master's clock
		m := EncodeClock(&Report{Sent: encodeTime(at)}, tc.held, came.Add(tc.held))
		ahead, within, ok := m.Offset(at, at.Add(tc.there+tc.held+tc.back))
		if !ok || ahead != tc.wantAhead || within != tc.wantWithin {
			t.Errorf("%s: %v within %v, %t: want %v within %v", tc.name, ahead, within, ok, tc.wantAhead, tc.wantWithin)
		}
	}
}

// What cannot be an answer to the report says nothing: a master of before, an
// answer to another report, a clock that was set while the answer was in progress.
func TestClockOffsetOfNothing(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	if EncodeClock(&Report{}, 0, at) != nil {
		t.Error("a clock for a report that said nothing of its own")
	}
	clock := func(held time.Duration) *MasterClock { return EncodeClock(&Report{Sent: encodeTime(at)}, held, at) }
	for name, m := range map[string]*MasterClock{
		"none": nil, "another report": EncodeClock(&Report{Sent: encodeTime(at.Add(1))}, 0, at),
		"held longer than it took": clock(time.Minute), "held for less than nothing": clock(-1), "empty": {},
	} {
		if _, _, ok := m.Offset(at, at.Add(time.Second)); ok {
			t.Errorf("%s: has an offset", name)
		}
	}
}
