package nodeagent_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

func sensitive(limit, used, waited int64) nodeagent.CPUSample {
	return nodeagent.CPUSample{Class: schema.ClassLatencySensitive, CPUMilli: limit, UsedMilli: used, WaitedMilli: waited}
}

func batch(limit, used, waited int64) nodeagent.CPUSample {
	return nodeagent.CPUSample{Class: schema.ClassBatch, CPUMilli: limit, UsedMilli: used, WaitedMilli: waited}
}

// TestThrottle is the life of a bound, sample by sample.
func TestThrottle(t *testing.T) {
	t.Parallel()
	var th nodeagent.Throttle
	now := t0
	step := func(what string, want int64, samples ...nodeagent.CPUSample) {
		t.Helper()
		now = now.Add(nodeagent.ThrottleEvery)
		var quotas []int64
		if th, quotas = th.Next(now, 4000, samples); quotas[len(quotas)-1] != want {
			t.Errorf("%s: quota %d, want %d (%+v)", what, quotas[len(quotas)-1], want, th)
		}
	}
	step("no process waits", 0, sensitive(1000, 300, 0), batch(2000, 3000, 0))
	step("a little is no harm", 0, sensitive(1000, 300, nodeagent.SuffersAt-1), batch(2000, 3000, 0))
	step("one that exceeds its limit has no claim", 0, sensitive(100, 300, 900), batch(2000, 3000, 0))
	step("one that has its own cores has no claim", 0, sensitive(1000, 300, 0), own(sensitive(1000, 300, 900)), batch(2000, 3000, 0))
	step("it suffers", 2250, sensitive(1000, 300, 500), batch(2000, 3000, 0))
	step("it suffers still", 1687, sensitive(1000, 300, 500), batch(2000, 2250, 0))
	step("better, not well", 1687, sensitive(1000, 300, nodeagent.CalmAt), batch(2000, 1687, 0))
	for range 4 {
		step("calm, not for long", 1687, sensitive(1000, 300, 0), batch(2000, 1687, 0))
	}
	step("a step up", 2087, sensitive(1000, 300, 0), batch(2000, 1687, 0))
	for range 25 {
		step("lifted", quotaOf(t, th, &now), sensitive(1000, 300, 0), batch(2000, 2000, 0))
	}
	step("no bound any more", 0, sensitive(1000, 300, 0), batch(2000, 4000, 0))
	step("it suffers again", 3000, sensitive(1000, 300, 500), batch(2000, 4000, 0))
	step("nobody there to suffer", 0, batch(2000, 3000, 0))
	step("not by batch", 0, sensitive(1000, 300, 900), batch(2000, 100, 0))
}

func own(s nodeagent.CPUSample) nodeagent.CPUSample {
	s.Own = true
	return s
}

// quotaOf returns what a calm sample will give the only batch task.
func quotaOf(t *testing.T, th nodeagent.Throttle, now *time.Time) int64 {
	t.Helper()
	_, q := th.Next(now.Add(nodeagent.ThrottleEvery), 4000, []nodeagent.CPUSample{sensitive(1000, 300, 0), batch(2000, 2000, 0)})
	return q[1]
}

// TestRelief: who is starved of the tenth that he keeps is helped against those
// who exceed their limits, and only for a while.
func TestRelief(t *testing.T) {
	t.Parallel()
	var th nodeagent.Throttle
	held := 0
	for i := range 100 {
		var q []int64
		th, q = th.Next(t0.Add(time.Duration(i)*nodeagent.ThrottleEvery), 2000, []nodeagent.CPUSample{sensitive(500, 1990, 900), batch(1000, 10, 950)})
		if q[0] != 0 && q[0] != 500 || q[1] != 0 {
			t.Fatalf("sample %d: quotas %v", i, q)
		}
		if q[0] == 500 {
			held++
		}
		if first := int(nodeagent.StarvesAfter / nodeagent.ThrottleEvery); i < first && q[0] != 0 || i == first && q[0] == 0 {
			t.Errorf("sample %d: quotas %v", i, q)
		}
	}
	if held < 30 || held > 70 {
		t.Errorf("held back in %d of 100 samples, want about half of them", held)
	}
}

// cpus is a machine on which tasks want CPU: an LS task that suffers as batch
// takes the processors, by its weight and as far as it is not bounded.
type cpus struct {
	cores, limit, want    int64 // of the LS task, as those below
	batchLimit, batchWant int64
	quota                 int64
}

func (c *cpus) samples() []nodeagent.CPUSample {
	b := c.batchWant
	if c.quota > 0 {
		b = min(b, c.quota)
	}
	used := min(c.want, c.cores)
	b = min(b, max(c.cores-used, c.cores/20))
	waited := int64(0)
	if b > c.cores-used-c.cores/10 { // a full machine is a machine that waits
		waited = 1000 * b / c.cores
	}
	return []nodeagent.CPUSample{sensitive(c.limit, used, waited), batch(c.batchLimit, b, 0)}
}

// TestThrottleProperties: whatever the samples, batch keeps its floor and LS its
// limit; when LS suffers from batch, batch is cut until it does not or has no
// more than its floor; when nobody suffers any more, all bounds go.
func TestThrottleProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := cpus{cores: 1000 * rapid.Int64Range(1, 64).Draw(t, "cores")}
		c.limit = rapid.Int64Range(10, c.cores/2).Draw(t, "limit")
		c.want = rapid.Int64Range(0, c.limit).Draw(t, "want")
		c.batchLimit = rapid.Int64Range(1, c.cores-c.limit).Draw(t, "batch limit")
		c.batchWant = rapid.Int64Range(0, c.cores).Draw(t, "batch want")
		var th nodeagent.Throttle
		now := t0
		step := func(samples []nodeagent.CPUSample) {
			now = now.Add(nodeagent.ThrottleEvery)
			var q []int64
			th, q = th.Next(now, c.cores, samples)
			floor := max(c.batchLimit*nodeagent.FloorPercent/100, 10)
			if q[0] != 0 && q[0] < min(c.limit, samples[0].CPUMilli) || q[1] != 0 && q[1] < floor {
				t.Fatalf("quotas %v of limits %d and %d", q, c.limit, c.batchLimit)
			}
			c.quota = q[1]
		}
		for range rapid.IntRange(0, 30).Draw(t, "noise") {
			step([]nodeagent.CPUSample{
				sensitive(c.limit, rapid.Int64Range(0, c.cores).Draw(t, "used"), rapid.Int64Range(0, 1000).Draw(t, "waited")),
				batch(c.batchLimit, rapid.Int64Range(0, c.cores).Draw(t, "batch used"), rapid.Int64Range(0, 1000).Draw(t, "batch waited")),
			})
		}
		calm := 0
		for range 40 { // 80 s
			s := c.samples()
			if s[0].WaitedMilli < nodeagent.SuffersAt || s[1].UsedMilli <= max(c.batchLimit*nodeagent.FloorPercent/100, 10) {
				calm++
			}
			step(s)
		}
		if calm < 20 {
			t.Fatalf("LS suffered in %d of 40 samples: %+v, %+v", 40-calm, c, th)
		}
		c.batchWant, c.want = 0, 0
		for range 80 { // 160 s
			step(c.samples())
		}
		if th.BatchMilli != 0 || c.quota != 0 {
			t.Fatalf("bounds stay: %+v", th)
		}
	})
}

// TestThrottleClock: a clock that is set back does not keep a bound for ever.
func TestThrottleClock(t *testing.T) {
	t.Parallel()
	th, _ := nodeagent.Throttle{}.Next(t0, 1000, []nodeagent.CPUSample{sensitive(500, 100, 900), batch(500, 900, 0)})
	if th.BatchMilli == 0 {
		t.Fatal("no bound")
	}
	for i := range 80 {
		th, _ = th.Next(t0.Add(-time.Hour+time.Duration(i)*nodeagent.ThrottleEvery), 1000, []nodeagent.CPUSample{sensitive(500, 100, 0), batch(500, 100, 0)})
	}
	if th.BatchMilli != 0 {
		t.Errorf("after 160 s: %+v", th)
	}
}
