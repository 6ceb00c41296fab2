package nodeagent

import (
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// How batch tasks are held back from the disk for latency-sensitive ones, and those
// of the free band for those of higher bands. Weights
// do nothing where the disk's scheduler knows none, and nothing for the journal of
// a file system, which all wait for: what helps there is less to write.
const (
	// IOFirstBytes is the first bound of all that give way together, in bytes a
	// second of what is read and of what is written. Each further one, while that
	// does not help, is a part of it, IOCut; lifted, it doubles.
	IOFirstBytes = 16 << 20
	IOCut        = 4
	// IOLeastBytes is the least that all of them have together, IOTaskBytes each.
	IOLeastBytes = 1 << 20
	IOTaskBytes  = 256 << 10
	// ioIdle is the share of the time, in thousandths, that a task waits for the disk
	// at most if it hardly uses it: who suffers does not suffer from it.
	ioIdle = 10
)

// IOThrottleNote is on a task whose reads and writes are bounded.
const IOThrottleNote = "its disk I/O is throttled while other tasks on the machine wait for the disk"

// IOThrottle is what is remembered from sample to sample. The zero value bounds
// nobody.
type IOThrottle struct {
	// Bytes is what all tasks that are bounded may read, and what they may write, in
	// a second; 0 is no bound.
	Bytes int64
	// Below is the rank below which tasks are bounded: the highest that suffered.
	Below Rank
	// Changed is when Bytes was last changed, or somebody last suffered.
	Changed time.Time
}

// Rank says who gives way to whom at the disk: the lower to the higher.
type Rank int

// The ranks. Tasks that share one share the disk as they can.
const (
	RankBatch  Rank = iota // of class batch
	RankFree               // latency-sensitive, of the free band
	RankOthers             // latency-sensitive, of a band that quota was given for
)

// Rank returns the task's.
func (p *CPUSample) Rank() Rank {
	switch {
	case p.Class == schema.ClassBatch:
		return RankBatch
	case p.Free:
		return RankFree
	}
	return RankOthers
}

// Next takes the samples of one interval and returns what is to be remembered, and the
// bound of each task in bytes a second, 0 for none. A latency-sensitive task suffers from
// SuffersAt of its time on, which it or another task may be the cause of: the kernel does
// not show which.
func (t IOThrottle) Next(now time.Time, samples []CPUSample) (IOThrottle, []int64) {
	if t.Changed.After(now) {
		t.Changed = now // the clock was set back
	}
	t = t.bound(now, samples)
	bounds := make([]int64, len(samples))
	yield := int64(0)
	for i := range samples {
		if samples[i].Rank() < t.Below {
			yield++
		}
	}
	if yield == 0 || yield == int64(len(samples)) { // nobody gives way, or there is nobody to give way to
		return IOThrottle{}, bounds
	}
	for i := range samples {
		if t.Bytes > 0 && samples[i].Rank() < t.Below {
			bounds[i] = max(t.Bytes/yield, IOTaskBytes)
		}
	}
	return t, bounds
}

// bound cuts what others may use when somebody suffers, and lifts it again.
func (t IOThrottle) bound(now time.Time, samples []CPUSample) IOThrottle {
	var waits int64 // of the highest rank that suffers, else the most of all
	suffering := RankBatch
	for i := range samples {
		p := &samples[i]
		if p.Rank() == RankBatch || p.Rank() < t.Below { // that it waits is what was wanted
			continue
		}
		if p.IOWaitedMilli >= SuffersAt {
			suffering = max(suffering, p.Rank())
		}
		waits = max(waits, p.IOWaitedMilli)
	}
	busy := slices.ContainsFunc(samples, func(p CPUSample) bool { return p.Rank() < suffering && p.IOWaitedMilli > ioIdle })
	switch {
	case waits >= SuffersAt && !busy && t.Bytes == 0:
		// It is not from these that it suffers.
	case waits >= SuffersAt && (t.Bytes == 0 || suffering > t.Below):
		return IOThrottle{IOFirstBytes, suffering, now}
	case waits >= SuffersAt:
		t.Bytes, t.Changed = max(t.Bytes/IOCut, IOLeastBytes), now
	case t.Bytes > 0 && waits >= CalmAt:
		t.Changed = now
	case t.Bytes > 0 && now.Sub(t.Changed) >= LiftEvery:
		t.Bytes, t.Changed = t.Bytes*2, now
		if t.Bytes > IOFirstBytes {
			return IOThrottle{}
		}
	}
	return t
}
