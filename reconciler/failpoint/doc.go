// Package failpoint marks the places around each write of a master that is to outlive
// it: before the write begins, and after it is durable.
//
// In: the name of a write, from Points. Out: nothing. In a program that is built with
// the tag failpoints, $MUSTER_FAILPOINT has the process killed, as by SIGKILL, at one
// passage of one place: `store-commit/before:3` is where the third commit is about to be
// sent. Without the tag, as everywhere but in tests, the calls are empty functions, and
// the environment is not read.
//
// It may be called from any goroutine. A write has both of its places in one function,
// so that nothing else lies between them.
package failpoint
