// Command skips runs go test and fails when a test was skipped that may not be.
//
// In: the arguments of go test, and a list of tests that may be skipped
// (.ci/skips.txt). Out: on standard output the lines that go test itself would
// print (one for each package, and all that a failing test said), then one line
// that counts what was skipped; the exit status is that of go test, or 1 when
// a skipped test is not on the list.
//
// It runs one child process and reads its output in one goroutine. It never
// decides whether a test passes.
package main
