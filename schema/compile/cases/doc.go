// Package cases reads the tests that a team writes in files _test.cue, as syntax: which
// there are, what they expect, and the file with one of them alone in it.
//
// In: parsed files. Out: cases, and changed files. It evaluates nothing, and does no I/O.
// A file belongs to one goroutine.
package cases
