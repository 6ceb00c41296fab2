// Package plantest has what tests of simulated cells declare: a machine, a job and a commit by the
// few things in which those of tests differ.
//
// In: names, sizes and numbers. Out: data of schema, which is the caller's. Any goroutine may call
// it. Nothing but tests imports it, and it decides nothing.
package plantest
