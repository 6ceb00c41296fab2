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
	// DotProduct takes the machine whose free amounts, times those asked for, give the
	// least sum, as shares of the largest machine: as the FGD paper's does.
	DotProduct Policy = "dot-product"
	// Cosine takes the machine whose free amounts point most into the direction of
	// what is asked for.
	Cosine Policy = "cosine"
)

// Options say how a snapshot is placed on. The zero value is muster's default
// but for preemption, which a caller has to want since it must act on victims.
type Options struct {
	Policy Policy // "" means Hybrid
	// Preempt allows to evict tasks of lower priority, see Decision.Victims.
	Preempt bool
	// Graceful says that victims take their time to stop: they stay, as tasks
	// that are stopping, until the caller removes them. The ask is not placed
	// yet, see Decision.Later, but has a claim on their room.
	Graceful bool
	// Spread is the attribute over which jobs are spread that do not name
	// one; "" means DefaultSpread.
	Spread string
	// Weights of Hybrid; nil means DefaultWeights.
	Weights *Weights
	// ReserveAfter is how long an ask waits before a machine may be held for
	// it, for as long again, and then in turns; 0 means DefaultReserveAfter,
	// less than 0 never.
	ReserveAfter time.Duration

	// OneByOne says that the asks of a pass come one by one: large ones are not decided
	// first, however many there are. For measures of what comes in an order.
	OneByOne bool
	// steady says that the cell counts as steady, see Weights, whatever is used of it.
	steady bool

	// The techniques that make placement fast; each can be switched off so
	// that its worth can be measured.
	NoCache   bool // forget scores between passes and between turns of a class
	NoClasses bool // every ask is a class of its own
	NoRelaxed bool // examine all machines for every class
	// Enough is how many machines with room are enough to choose among, in
	// addition to one for each task of the class; 0 means DefaultEnough.
	Enough int
}

// DefaultEnough is how many machines with room are enough to choose among.
const DefaultEnough = 128

// DefaultSpread is the attribute over which jobs are spread.
const DefaultSpread = "rack"

// DefaultReserveAfter is how long an ask waits, by default, before a machine
// is held for it.
const DefaultReserveAfter = 5 * time.Minute

// Weights weigh the terms of the hybrid score. Before its weight each term is
// about 1 where it matters.
//
// How evenly a job is spread over domains (Ask.Spread) is no term: among the
// machines that have room, those of the domain with the fewest tasks of the
// job come first, whatever their score. So no weight can undo it.
//
// A cell of which half is used is steady: what comes takes the place of what has gone.
// Other terms are about packing there than while it fills: Room and SteadyTight, not
// Stranded, Shape and ShapeDevices, Tight, Open and its likes for size and large asks.
type Weights struct {
	// Packing bounds the terms that follow, up to Mix: their sum is brought into a
	// range so wide, and keeps its order. So packing decides between machines only that
	// are equal in all that stands above it.
	Packing float32
	// Room: the typical asks of the cell that do not fit any more on the machine, each
	// as often as it did, weighted by its share and its size, of what is scarce more than of
	// what is not.
	Room float32
	// SteadyTight is Tight in a steady cell: what is left of the machine, as a share of
	// the mean one, of what is scarce more than of what is not.
	SteadyTight float32
	// Stranded: what becomes useless. For each typical ask of the cell that
	// does not fit into what is left of the machine, everything left is
	// useless to it; for one that fits, the parts of devices that are too
	// small for it are. The term is what the placement adds to that, in
	// multiples of a typical ask, each ask counted by its share of all, and the
	// less the smaller it is beside a machine.
	Stranded float32
	// Shape: the cosine of what is asked and what is free, in multiples of
	// the typical ask. A machine that has mostly CPU left gets the asks that
	// want mostly CPU, before anything is stranded.
	Shape float32
	// ShapeDevices is Shape in a cell that has a device to each two machines at least: there what is used of CPU and RAM where
	// devices are free leaves them without.
	ShapeDevices float32
	// Tight: what is left of the machine, in multiples of the typical ask,
	// so that large asks find room in one piece.
	Tight float32
	// Open: the machine has been idle. Large asks need machines that nobody
	// has begun to use, and shape alone would begin to use all of them.
	Open float32
	// OpenSize is added to Open by the size of the machine, for an ask that wants nothing that some
	// machines lack: what is left of it, as a share of the mean one, of what is scarce more than of
	// what is not. Of idle machines the largest are left to asks that fit on no other.
	OpenSize float32
	// OpenLarge and OpenSizeLarge are added to Open and OpenSize for such an ask that is larger
	// than what the cell holds in the mean: half of them at twice that, all far beyond. Where ever
	// larger asks come, what still fits beside the small ones leaves idle machines to the largest.
	OpenLarge, OpenSizeLarge float32
	// Headroom, of prod asks only: CPU is compressible, and a machine whose
	// prod tasks leave no tenth of it to spikes or to others is worse.
	Headroom float32
	// Mix: prod beside non-prod. What prod reserves and does not use can only
	// be reclaimed for non-prod work on the same machine.
	Mix float32
	// Begin: the machine holds no task but of jobs that are everywhere (Ask.Everywhere). It
	// is beside what Packing bounds, in a steady cell, too: with as much as Packing no such machine is begun while
	// another one has room that is as good in what stands above packing, and among such machines packing
	// decides as ever.
	Begin float32
	// Machine: how much of the job the machine holds already; its loss should
	// not be the job's.
	Machine float32
	// Packages: the share of the task's packages that the machine lacks.
	Packages float32
	// Noise: the machine is overloaded, or holds a task of a job in Ask.Apart. It is worse
	// than any number of tasks of the job itself, and better than a broken wish of 100.
	Noise float32
	// Wish: preferences that do not hold, by their weights in percent, those among
	// Ask.Relations included, and the alternatives of devices before the first for which the machine
	// has enough (Ask.FirstOf), each as one of 100.
	Wish float32
}

// DefaultWeights are what the measurements in docs/performance.md were made
// with.
func DefaultWeights() Weights {
	return Weights{
		Packing: 0.15, Room: 2, SteadyTight: 10, Stranded: 0.4, Shape: 1, ShapeDevices: 4, Tight: 0.0002, Open: 0.05, OpenSize: 0.005, OpenLarge: 0.2, OpenSizeLarge: 0.05, Headroom: 0.02, Mix: 0.02,
		Machine: 8, Packages: 1, Noise: 8, Wish: 16,
	}
}

// keepsOrder reports whether asks are decided in the order in which they come, however many there are.
func (o *Options) keepsOrder() bool {
	return o.Policy != "" && o.Policy != Hybrid || o.OneByOne
}
