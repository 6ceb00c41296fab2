// Package rebalance finds moves of running tasks that open a hole, which is room for a task
// that waits, on one machine, moves that make room for what a cell is typically asked for,
// before it is, and moves that leave machines empty.
//
// In: a placement.Snapshot, the ask that waits, and which tasks may be moved. Out: the
// machine and the fewest moves, in an order in which each finds room at its destination
// while the task is still where it was; or the moves that make the most room, of which each
// does; or all moves that empty the machines which are used least. The same snapshot, ask and bounds give the same moves.
//
// It is pure: no I/O, no clock, no randomness, no goroutine, and the snapshot is as it was
// when it returns. It belongs to the goroutine that the snapshot belongs to.
package rebalance
