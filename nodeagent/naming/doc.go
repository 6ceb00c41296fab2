// Package naming is what a machine knows of its cell by itself: where the other machines and all
// tasks are, which of them are ready, and which tasks are behind which service. Lookups of
// names and the programming of services are answered from it while no master can be reached.
//
// Changes from the master go into a Directory (Apply), which has one owner; it returns which
// machines and services may differ. Snapshots come out: they never change, cost nothing to make,
// and any number of goroutines may read them. A change costs what has changed, and not the size
// of the directory: a snapshot shares with the one before all that is the same in both.
//
// The package decides nothing about packets or messages, does no I/O, and believes what it is
// given: what agents claim is checked by the master.
package naming
