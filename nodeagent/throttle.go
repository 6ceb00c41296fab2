package nodeagent

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// How batch tasks are held back for latency-sensitive ones. Weights do most of
// it: this is for when they are not enough.
const (
	// ThrottleEvery is the time between two samples. Waits of a second are
	// noise; who waits for ten has a reason to complain.
	ThrottleEvery = 2 * time.Second
	// SuffersAt is the share of the time, in thousandths, that a task waited
	// for a processor, from which on it suffers; CalmAt is below what it does
	// not. A request that is served in 5 ms and waits a tenth of that is not
	// noticed; half of it is.
	SuffersAt = 100
	CalmAt    = 50
	// LiftEvery is the time without suffering before each step by which the
	// bound is lifted. A step is LiftPercent of the machine's processors.
	LiftEvery   = 10 * time.Second
	LiftPercent = 10
	// CutPercent is to how much a bound that does not help is cut.
	CutPercent = 75
	// FloorPercent of its limit is what a task keeps, however others suffer.
	// It is also what weights leave to batch: see BatchWeightPercent.
	FloorPercent = 10
	// BatchWeightPercent is the weight of a batch task against that of a
	// latency-sensitive one of the same limit. As long as limits do not promise
	// more than the machine has, it alone leaves batch FloorPercent.
	BatchWeightPercent = 10
	// StarvesAfter is how long a batch task has waited and got less than half of
	// its floor, which cannot come from its own bound, before latency-sensitive
	// tasks lose what they use beyond their limits, for RelievedFor.
	StarvesAfter = 20 * time.Second
	RelievedFor  = 20 * time.Second
	// leastQuota is the least bound in thousandths of a core: below it a
	// task cannot even answer a signal.
	leastQuota = 10
)

// ThrottleNote is on a task that is held back.
const ThrottleNote = "its CPU is throttled while latency-sensitive tasks on the machine wait for CPU"

// CPUSample is what a running task did in the time since the sample before.
type CPUSample struct {
	Class    schema.AppClass
	Free     bool  // of the free band, to which nothing was promised
	CPUMilli int64 // its limit
	// UsedMilli is what it used, in thousandths of a core.
	UsedMilli int64
	// WaitedMilli is the share of the time, in thousandths, that it was ready to
	// run and had no processor, but for waits that its own bound is to blame
	// for.
	WaitedMilli int64
	// IOWaitedMilli is the share of the time, in thousandths, in which one of its
	// threads or more waited for a disk, its own bound to blame or not.
	IOWaitedMilli int64
	// Own says that it runs on cores of its own: it does not suffer from
	// others, and others do not suffer from it.
	Own bool
}

// Throttle is what is remembered from sample to sample. The zero value bounds
// nobody.
type Throttle struct {
	// BatchMilli is what all batch tasks may use together, in thousandths of a
	// core; 0 is no bound.
	BatchMilli int64
	// Changed is when BatchMilli was last changed, or LS last suffered.
	Changed time.Time
	// StarvingSince is since when a batch task starves; zero if none does.
	// RelievedUntil is until when LS tasks get no more than their limits.
	StarvingSince, RelievedUntil time.Time
}

// Next takes the samples of one interval and returns what is to be remembered,
// and the bound of each task in thousandths of a core, 0 for none. machine is
// what tasks may use of the machine, in thousandths of a core.
func (t Throttle) Next(now time.Time, machine int64, samples []CPUSample) (Throttle, []int64) {
	s := sum(samples)
	quotas := make([]int64, len(samples))
	if !s.batch || !s.sensitive {
		return Throttle{}, quotas
	}
	if t.Changed.After(now) || t.StarvingSince.After(now) || t.RelievedUntil.After(now.Add(RelievedFor)) {
		t = Throttle{BatchMilli: t.BatchMilli, Changed: now} // the clock was set back
	}
	t = t.bound(now, machine, s)
	t = t.relieve(now, s)
	for i := range samples {
		p := &samples[i]
		switch {
		case p.Own:
		case p.Class == schema.ClassBatch && t.BatchMilli > 0:
			quotas[i] = max(t.BatchMilli*p.CPUMilli/max(1, s.limits), p.floor())
		case p.Class == schema.ClassLatencySensitive && now.Before(t.RelievedUntil):
			quotas[i] = max(p.CPUMilli, leastQuota)
		}
	}
	return t, quotas
}

// floor is what a task keeps, in thousandths of a core.
func (p *CPUSample) floor() int64 { return max(p.CPUMilli*FloorPercent/100, leastQuota) }

// sums is what all samples say together.
type sums struct {
	batch, sensitive bool  // there are such tasks that share cores
	suffers          int64 // the most that an LS task within its limit waited
	used             int64 // by batch
	limits, floors   int64 // of batch
	starves          bool  // a batch task waits and gets less than half of its floor
}

func sum(samples []CPUSample) sums {
	var s sums
	for i := range samples {
		p := &samples[i]
		switch {
		case p.Own:
		case p.Class == schema.ClassBatch:
			s.batch = true
			s.used += p.UsedMilli
			s.limits += p.CPUMilli
			s.floors += p.floor()
			s.starves = s.starves || p.WaitedMilli >= 2*SuffersAt && 2*p.UsedMilli < p.floor()
		default:
			s.sensitive = true
			// One that uses more than its limit waits for what nobody has
			// promised it.
			if p.UsedMilli <= p.CPUMilli {
				s.suffers = max(s.suffers, p.WaitedMilli)
			}
		}
	}
	return s
}

// bound cuts what batch may use when LS suffers, and lifts it again.
func (t Throttle) bound(now time.Time, machine int64, s sums) Throttle {
	switch {
	case s.suffers >= SuffersAt && s.used <= s.floors && t.BatchMilli == 0:
		// Batch hardly runs: it is not from batch that LS suffers.
	case s.suffers >= SuffersAt:
		from := s.used
		if t.BatchMilli > 0 {
			from = min(from, t.BatchMilli)
		}
		t.BatchMilli, t.Changed = max(from*CutPercent/100, s.floors), now
	case t.BatchMilli > 0 && s.suffers >= CalmAt:
		t.Changed = now
	case t.BatchMilli > 0 && now.Sub(t.Changed) >= LiftEvery:
		t.BatchMilli, t.Changed = t.BatchMilli+max(1, machine*LiftPercent/100), now
		if t.BatchMilli >= machine {
			t.BatchMilli = 0
		}
	}
	return t
}

// relieve holds LS tasks to their limits for a while when batch has starved for
// too long.
func (t Throttle) relieve(now time.Time, s sums) Throttle {
	switch {
	case !s.starves, now.Before(t.RelievedUntil):
		t.StarvingSince = time.Time{}
	case t.StarvingSince.IsZero():
		t.StarvingSince = now
	case now.Sub(t.StarvingSince) >= StarvesAfter:
		t.RelievedUntil, t.StarvingSince = now.Add(RelievedFor), time.Time{}
	}
	return t
}

// CPUTime is what a task has used of processors since it started.
type CPUTime struct {
	Used time.Duration
	// Waited is how long it was ready to run and had no processor, Throttled
	// how much of that its own bound is to blame for.
	Waited, Throttled time.Duration
	// IOWaited is how long one of its threads or more waited for a disk.
	IOWaited time.Duration
}

// Sub returns t - o. Counts that went back, as threads ended, count as nothing.
func (t CPUTime) Sub(o CPUTime) CPUTime {
	return CPUTime{max(0, t.Used-o.Used), max(0, t.Waited-o.Waited), max(0, t.Throttled-o.Throttled), max(0, t.IOWaited-o.IOWaited)}
}

// Sample returns the sample of a task that has such limits and has done what
// spent says within the time took, which is not 0.
func (l TaskLimits) Sample(spent CPUTime, took time.Duration) CPUSample {
	waited := max(0, spent.Waited-spent.Throttled)
	return CPUSample{
		Class: l.Class, CPUMilli: l.CPUMilli, Own: l.Cores > 0,
		UsedMilli:   int64(spent.Used * 1000 / took),
		WaitedMilli: min(1000, int64(waited*1000/took)), IOWaitedMilli: min(1000, int64(spent.IOWaited*1000/took)),
	}
}
