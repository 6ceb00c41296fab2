package reserve

import (
	"math"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// Startup is how long all that a task asks for is held back for it from its first sample on:
	// what it uses while it starts is not what it uses later (Borg §5.5: 300 s).
	Startup = 300 * time.Second
	// HalfLife is within what time a reservation comes half the way down to what the task uses:
	// the paper says "slowly", and no number.
	HalfLife = 10 * time.Minute
	// margin is what is held back beyond what a task uses, as a share of that.
	margin = 0.25
	// grain is the least change of a reservation, as a share of the limit, that anybody is informed
	// of: a reservation changes with each sample, and each that is passed on costs a look at the
	// machine. One that grows is passed on at once.
	grain = 1.0 / 32
)

// Of is what is held back in the end for a task that goes on to use so much: that and a margin of
// a quarter of it, and no more than its limit.
func Of(limit, usage schema.Resources) schema.Resources {
	of := func(limit, usage int64) int64 {
		return min(limit, int64(math.Ceil(float64(usage)*(1+margin))))
	}
	return schema.Resources{
		CPUMilli: of(limit.CPUMilli, usage.CPUMilli), RAMBytes: of(limit.RAMBytes, usage.RAMBytes), DiskBytes: of(limit.DiskBytes, usage.DiskBytes),
	}
}

// estimate is what is held back for a generation.
type estimate struct {
	task      schema.TaskName
	since, at time.Time        // of its first and its last sample
	exact     schema.Resources // after the last sample
	passed    schema.Resources // what others know of it
}

// take takes a sample, and reports whether others have to know.
func (e *estimate) take(limit, usage schema.Resources, now time.Time) bool {
	want := Of(limit, usage)
	left := math.Exp2(-float64(now.Sub(e.at)) / float64(HalfLife)) // of the way down
	starts := now.Sub(e.since) < Startup
	passes := false
	of := func(limit, exact, want, passed int64) (int64, int64) {
		switch {
		case starts:
			exact = limit
		case want >= exact: // at once: what it uses it must have
			exact = want
		default:
			exact = min(limit, want+int64(float64(exact-want)*left))
		}
		if exact > passed || float64(passed-exact) >= grain*float64(limit) {
			passes = passes || exact != passed
			passed = exact
		}
		return exact, passed
	}
	e.exact.CPUMilli, e.passed.CPUMilli = of(limit.CPUMilli, e.exact.CPUMilli, want.CPUMilli, e.passed.CPUMilli)
	e.exact.RAMBytes, e.passed.RAMBytes = of(limit.RAMBytes, e.exact.RAMBytes, want.RAMBytes, e.passed.RAMBytes)
	e.exact.DiskBytes, e.passed.DiskBytes = of(limit.DiskBytes, e.exact.DiskBytes, want.DiskBytes, e.passed.DiskBytes)
	e.at = now
	return passes
}
