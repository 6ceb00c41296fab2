// Package filelock takes the lock of a directory that one process may have at a time.
//
// In: the directory and the name of the lock file in it. Out: the lock, or who has it.
// The kernel gives a lock back when its process ends, however it ends, so what a dead
// process left behind holds nothing.
//
// A Lock belongs to one goroutine at a time. Master, agent and keeper lock with it, so
// it lies below all of them. It links the standard library only, since it is part of
// each keeper, and removes no file: whoever removed one that another has locked would
// let two processes lock two files of the same name. Who has the lock itself may remove
// its file just before it gives the lock back: Take looks, once it has locked a file, whether
// the name still leads to that one, and else begins again.
package filelock
