package placement

import "time"

// Policy names a rule that chooses between feasible machines.
type Policy string

// The policies. All but Hybrid exist to be compared with.
const (
	Hybrid   Policy = "hybrid"
	BestFit  Policy = "best-fit"  // the fullest machine that has room
	WorstFit Policy = "worst-fit" // the emptiest; E-PVM like
	Random   Policy = "random"    // any, by hash
)

// Options say how a snapshot is placed on. The zero value is muster's default
// but for preemption, which a caller has to want since it must act on victims.
type Options struct {
	Policy Policy // "" means Hybrid
	// Preempt allows to evict tasks of lower priority, see Decision.Victims.
	Preempt bool
	// Spread is the attribute over which jobs are spread that do not name
	// one; "" means DefaultSpread.
	Spread string
	// Weights of Hybrid; nil means DefaultWeights.
	Weights *Weights
	// ReserveAfter is how long an ask waits before a machine may be held for
	// it; 0 means DefaultReserveAfter, less than 0 never.
	ReserveAfter time.Duration

	// The techniques that make placement fast; each can be switched off so
	// that its worth can be measured.
	NoCache   bool // forget scores between passes and between turns of a class
	NoClasses bool // every ask is a class of its own
	NoRelaxed bool // examine all machines for every class
}

// DefaultSpread is the attribute over which jobs are spread.
const DefaultSpread = "rack"

// DefaultReserveAfter is how long an ask waits, by default, before a machine
// is held for it.
const DefaultReserveAfter = 5 * time.Minute

// Weights weigh the terms of the hybrid score. Each term lies between 0 and
// about 1 before its weight.
type Weights struct {
	Stranded float32 // room that becomes useless to the cell's typical asks
	Headroom float32 // room left for spikes of prod tasks
	Mix      float32 // prod beside non-prod, so that reclaiming has something to take
	Machine  float32 // tasks of the same job on the same machine
	Packages float32 // packages that the machine lacks
	Wish     float32 // preferences that do not hold
}

// DefaultWeights are what the measurements in docs/performance.md were made
// with.
func DefaultWeights() Weights {
	return Weights{Stranded: 1, Headroom: 0.1, Mix: 0.1, Machine: 2, Packages: 0.5, Wish: 4}
}
