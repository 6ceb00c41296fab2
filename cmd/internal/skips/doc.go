// Command skips runs go test and fails when a test was skipped that may not be.
//
// In: the arguments of go test, and a list of tests that may be skipped
// (.ci/skips.txt). Out: on standard output the lines that go test itself would
// print (one for each package, and all that a failing test said), then one line
// that counts what was skipped; the exit status is that of go test, or 1 when
// a skipped test is not on the list.
//
// Where a few tests failed, each is run three more times, alone. If all of them pass
// each time, the exit status is 0, and the last lines name them: they fail by chance, and
// are to be repaired, but say nothing of what is being checked. A data race, a panic, a test
// that does not end and a package that does not build are never run again.
//
// It runs one child process at a time and reads its output in one goroutine.
package main
