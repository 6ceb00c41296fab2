// Package reserve estimates what a cell holds back for tasks by what they use, so that other work
// can run in what they asked for and do not use: resource reclamation (Borg §5.5).
//
// In: samples of what the tasks of machines use, and when. Out: a reservation for each generation
// of a task, from what it uses to its limit.
//
// It is pure: no I/O, no clock, no goroutine. A Book belongs to one goroutine.
package reserve
