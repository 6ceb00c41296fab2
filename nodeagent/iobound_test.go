package nodeagent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestIOThrottle plays a neighbour that waits for the disk, and batch tasks that
// do, or do not.
func TestIOThrottle(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	var s nodeagent.IOThrottle
	now := t0
	// step takes a sample some seconds later: how long the neighbour waited, and
	// each of the batch tasks, in thousandths.
	step := func(what string, after time.Duration, waited int64, batch []int64, want ...int64) {
		t.Helper()
		now = now.Add(after)
		samples := []nodeagent.CPUSample{{Class: schema.ClassLatencySensitive, IOWaitedMilli: waited}}
		for _, b := range batch {
			samples = append(samples, nodeagent.CPUSample{Class: schema.ClassBatch, IOWaitedMilli: b})
		}
		var got []int64
		if s, got = s.Next(now, samples); got[0] != 0 || !slices.Equal(got[1:], want) {
			t.Errorf("%s: bounds %v, want none for the first, and %v", what, got, want)
		}
	}
	const soon = nodeagent.ThrottleEvery
	step("no process waits", soon, 20, []int64{900, 0}, 0, 0)
	step("batch does not use the disk", soon, 900, []int64{5, 0}, 0, 0)
	step("it suffers", soon, 300, []int64{900, 0}, 8*mib, 8*mib)
	step("it still does", soon, 300, []int64{900, 0}, 2*mib, 2*mib)
	step("and waits no less", soon, 300, []int64{0, 0}, 512<<10, 512<<10)
	step("there is a least", soon, 300, []int64{900, 0}, 512<<10, 512<<10)
	step("for each, too", soon, 300, []int64{900, 0, 0, 0, 0, 0, 0, 0}, slices.Repeat([]int64{256 << 10}, 8)...)
	step("better, not well", nodeagent.LiftEvery, 70, []int64{900}, mib)
	step("well, for a moment", soon, 10, []int64{900}, mib)
	step("for long", nodeagent.LiftEvery, 10, []int64{900}, 2*mib)
	step("and longer", soon, 10, []int64{900}, 2*mib)
	for _, want := range []int64{4, 8, 16, 0} {
		step("lifted", nodeagent.LiftEvery, 10, []int64{900}, want*mib)
	}
	step("again", soon, 100, []int64{900}, 16*mib)
	now = now.Add(-time.Hour) // the clock is set back
	step("as it was", soon, 0, []int64{900}, 16*mib)
	step("lifted after all", nodeagent.LiftEvery, 0, []int64{900}, 0)
	step("bounded", soon, 100, []int64{900}, 16*mib)
	if s, _ = s.Next(now, []nodeagent.CPUSample{{Class: schema.ClassBatch, IOWaitedMilli: 900}}); s != (nodeagent.IOThrottle{}) {
		t.Errorf("nobody to suffer: %+v", s)
	}
}

// TestIORanks: those of the free band give way to those of higher bands, and not to
// each other; batch gives way to all.
func TestIORanks(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	batch, free, prod := nodeagent.CPUSample{Class: schema.ClassBatch, IOWaitedMilli: 900}, nodeagent.CPUSample{Free: true}, nodeagent.CPUSample{}
	waits := func(p nodeagent.CPUSample, milli int64) nodeagent.CPUSample {
		p.IOWaitedMilli = milli
		return p
	}
	for _, c := range []struct {
		what    string
		samples []nodeagent.CPUSample
		want    []int64
	}{
		{"one of the free band suffers", []nodeagent.CPUSample{batch, waits(free, 900), waits(free, 900), prod}, []int64{16 * mib, 0, 0, 0}},
		{"one of a higher band suffers", []nodeagent.CPUSample{batch, waits(free, 900), free, waits(prod, 900)}, []int64{16 * mib / 3, 16 * mib / 3, 16 * mib / 3, 0}},
		{"without batch", []nodeagent.CPUSample{waits(free, 900), waits(prod, 900)}, []int64{16 * mib, 0}},
		{"of one rank", []nodeagent.CPUSample{waits(prod, 900), waits(prod, 900)}, []int64{0, 0}},
		{"of one rank, free", []nodeagent.CPUSample{waits(free, 900), waits(free, 900)}, []int64{0, 0}},
	} {
		if _, got := (nodeagent.IOThrottle{}).Next(t0, c.samples); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	// Who is bounded waits: that is not counted against batch.
	s, _ := nodeagent.IOThrottle{}.Next(t0, []nodeagent.CPUSample{batch, waits(free, 900), waits(prod, 900)})
	if next, _ := s.Next(t0.Add(nodeagent.LiftEvery), []nodeagent.CPUSample{batch, waits(free, 900), prod}); next != (nodeagent.IOThrottle{}) {
		t.Errorf("%+v, want none any more", next)
	}
}
