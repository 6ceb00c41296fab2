package fastforward_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/workload"
	"github.com/musterhq/muster/reconciler/fastforward"
	"github.com/musterhq/muster/schema"
)

func play(t *testing.T, load float64, c fastforward.Config) *fastforward.Result {
	t.Helper()
	w, err := workload.New(workload.Config{Machines: 20, Span: c.Span, Load: load})
	if err != nil {
		t.Fatal(err)
	}
	c.Work = w
	r, err := fastforward.Play(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPlayTooMuch plays a cell with more work than room, whose machines fail all the time: it adds
// up, also where what happens is reported less often.
func TestPlayTooMuch(t *testing.T) {
	t.Parallel()
	r := play(t, 1.3, fastforward.Config{Span: 15 * time.Minute, Failures: fastforward.MaxFailures, Down: 20 * time.Second})
	last := r.Samples[len(r.Samples)-1]
	if last.Pending < 100 || r.Failures == 0 || last.Running+last.Pending != r.Tasks-r.Finished {
		t.Errorf("%d failures, %d of %d tasks finished, in the end %+v", r.Failures, r.Finished, r.Tasks, last)
	}
}

// TestPlay plays hours in which machines fail.
func TestPlay(t *testing.T) {
	t.Parallel()
	c := fastforward.Config{Span: time.Hour, Failures: 200, Down: 20 * time.Minute}
	r := play(t, 0.7, c)
	last := r.Samples[len(r.Samples)-1]
	evicted := 0
	for _, n := range r.Evictions {
		evicted += n
	}
	switch {
	case len(r.Samples) != 144 || last.Seconds != 3600 || r.Machines != 20:
		t.Errorf("%d samples, the last %+v", len(r.Samples), last)
	case r.Failures == 0 || r.Evictions[schema.CauseMachineLost] == 0:
		t.Errorf("%d failures, evictions %v", r.Failures, r.Evictions)
	case r.Started-r.Finished-evicted != last.Running:
		t.Errorf("%d started, %d finished, %d evicted, %d run", r.Started, r.Finished, evicted, last.Running)
	case r.Finished == 0 || last.Running+last.Pending != r.Tasks-r.Finished:
		t.Errorf("%d of %d tasks finished, %d run, %d are pending", r.Finished, r.Tasks, last.Running, last.Pending)
	case r.Mean.CPU < 55 || r.Mean.CPU > 85 || r.Mean.UsedCPU >= r.Mean.CPU || r.Mean.Up >= 21:
		t.Errorf("%+v", r.Mean)
	case len(r.Waits) != 3 || r.Waits[0].Band != schema.BandFree || r.Waits[0].P50 <= 0 || r.Waits[0].P50 > r.Waits[0].P99:
		t.Errorf("%+v", r.Waits)
	}
	if diff := cmp.Diff(r, play(t, 0.7, c)); diff != "" {
		t.Errorf("the same again is something else:\n%s", diff)
	}
	c.Policy = string(placement.WorstFit)
	if cmp.Equal(r.Samples, play(t, 0.7, c).Samples) {
		t.Error("another policy does the same")
	}
}

// TestPressure: where more is asked for than there is, production runs and the rest is
// pending, also after machines have failed.
func TestPressure(t *testing.T) {
	t.Parallel()
	r := play(t, 1.1, fastforward.Config{Span: 15 * time.Minute, Failures: 1000, Down: 10 * time.Minute})
	if r.Evictions[schema.CausePreempted] == 0 || r.Mean.Pending == 0 {
		t.Errorf("evictions %v, %+v", r.Evictions, r.Mean)
	}
	for _, s := range r.Samples { // of what is up; tasks of machines that are gone do not run
		if s.CPU > 100 || s.RAM > 100 {
			t.Errorf("more is allocated than there is: %+v", s)
		}
	}
	for _, w := range r.Waits {
		if never := w.Band == schema.BandProduction; never != (w.Pending == 0) {
			t.Errorf("%+v", w)
		}
	}
}

// TestReclaim: what tasks ask for and do not use is room for those below production, and production
// gets what it asks for nevertheless.
func TestReclaim(t *testing.T) {
	t.Parallel()
	r := play(t, 1.2, fastforward.Config{Span: 30 * time.Minute, Reclaim: true})
	last := r.Samples[len(r.Samples)-1]
	switch {
	case !r.Reclaims || r.Samples[0].ReclaimedCPU != 0:
		t.Errorf("before anything is estimated: %+v", r.Samples[0])
	case last.ReclaimedCPU < 10 || last.ReclaimedCPU > 30 || last.CPU < 110 || last.UsedCPU > 100 || last.UsedRAM > 100:
		t.Errorf("in the end %+v", last)
	case last.Pending > 100: // without reclamation it is 800
		t.Errorf("%d are pending", last.Pending)
	}
	for _, w := range r.Waits {
		if w.Band == schema.BandProduction && w.Pending > 0 {
			t.Errorf("%+v", w)
		}
	}
}

// TestReclaimed: production preempts what runs in what it asks for.
func TestReclaimed(t *testing.T) {
	t.Parallel()
	gib := func(n int64) schema.Resources { return schema.Resources{CPUMilli: 1000 * n, RAMBytes: n << 30} }
	job := func(name string, p schema.Priority, arrives time.Duration, limit int64) workload.Job {
		return workload.Job{
			Name: schema.JobName{Cell: "c", User: "u", Job: name}, Priority: p, Tasks: 1, Limit: gib(limit), Usage: gib(1), Steady: true, Arrives: arrives,
		}
	}
	r, err := fastforward.Play(fastforward.Config{
		Work: &workload.Workload{
			Machines: []placement.Machine{{Name: "m1", Up: true, Capacity: gib(10)}},
			Jobs:     []workload.Job{job("idle", 200, 0, 8), job("bulk", 0, 0, 6), job("more", 200, 2*time.Hour, 2)},
		},
		Span: 3 * time.Hour, Reclaim: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if before := r.Samples[len(r.Samples)/2]; before.ReclaimedCPU < 28 || before.ReclaimedCPU > 29 { // 4 of 14
		t.Errorf("before %+v", before)
	}
	if r.Evictions[schema.CausePreempted] == 0 {
		t.Errorf("evictions %v", r.Evictions)
	}
}

// TestBounds: what is out of bounds is refused.
func TestBounds(t *testing.T) {
	t.Parallel()
	w, err := workload.New(workload.Config{Machines: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []fastforward.Config{
		{Work: w},
		{Work: w, Span: fastforward.MaxSpan + 1},
		{Work: w, Span: time.Hour, Failures: -1},
		{Work: w, Span: time.Hour, Failures: math.NaN()},
		{Work: &workload.Workload{}, Span: time.Hour},
	} {
		if _, err := fastforward.Play(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
