// Package parallel makes calls from several goroutines.
//
// In: how many goroutines, and then how many calls of what. Out: a function that makes them, and
// returns when all have returned. The cores start no goroutine: placement, loading a cell and the
// digests of its jobs are given such a function, and come to the same with any number of
// workers. Safe for concurrent use. It never makes a call twice, and decides nothing.
package parallel
