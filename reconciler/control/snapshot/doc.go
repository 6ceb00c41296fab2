// Package snapshot is a cell as placement sees it: a placement.Snapshot that follows the
// documents and what is about to become of them, and the questions that controllers have
// for it: whether a task fits, and where it would be better.
//
// In: the facts, and what the step before has kept. Out: asks for placement, and answers,
// with Until where time alone may change them. A question leaves the snapshot as it was:
// what would be is tried on a fork. Whoever places tasks changes it.
//
// It is pure. A Cell is of one step, and belongs to one goroutine.
package snapshot
