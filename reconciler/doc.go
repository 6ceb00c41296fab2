// Package reconciler is the core of the master: what should run, compared with
// what is stored and what is observed, becomes what to write next.
//
// In: the stored State, what agents say (Observed), the time and a seed. Out:
// documents to write, in order, and events. It never remembers anything beyond
// its arguments: a master that is killed at any instant is replaced by one
// that loads the State and calls the same functions.
//
// Master puts these functions together into a state machine; reconciler/loop, the
// simulation and the tests drive it.
//
// It is pure: no I/O, no clock, no global randomness, no goroutine. State and
// Observed belong to one goroutine (see reconciler/loop).
package reconciler
