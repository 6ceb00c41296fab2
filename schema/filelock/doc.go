// Package filelock takes the lock of a directory that one process may have at a time.
//
// In: the directory and the name of the lock file in it. Out: the lock, or who has it.
// The kernel gives a lock back when its process ends, however it ends, so what a dead
// process left behind holds nothing.
//
// A Lock belongs to one goroutine at a time. Master, agent and keeper lock with it, so
// it lies below all of them. It links the standard library only, since it is part of
// each keeper, and removes no file: whoever removed a locked one would let two
// processes lock two files of the same name.
package filelock
