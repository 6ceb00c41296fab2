// Package placement decides which task runs on which machine.
//
// In: a Snapshot of the cell (machines, and what they hold) and a list of
// asks. Out: one Decision per ask, with its ports, its victims and the reason.
// The same snapshot, asks and seed give the same decisions.
//
// It is pure: no I/O, no clock, no global randomness, no goroutine. A Snapshot
// belongs to one goroutine at a time.
package placement
