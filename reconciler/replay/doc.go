// Package replay plays the event log of a cell again, on a checkpoint of it: what came from
// outside happens when the log says that it did, the master decides, and what it decides is
// held beside what the log says that it decided then.
//
// In: a cell, and the records of what happened after it was saved. Out: a Result, which names
// each difference and why it is there.
//
// From outside come commits, machines that join, fall silent and speak again, their conditions,
// starts and ends of tasks, health checks that fail, and what operators ask for. All else of the
// log is the cell's own doing, and is compared. What the log does not say is taken to be as in a
// plan; what of it cannot be played is among the notes.
//
// It is pure: no I/O, no clock, no global randomness, no goroutine.
package replay
