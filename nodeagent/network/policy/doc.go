// Package policy decides what the kernel of a machine needs to know so that only those connect to its
// tasks who may: it turns the policies of the jobs of the tasks here, and what the directory says of
// where all others are, into the elements of sets and maps. Package kernel below it programs them.
//
// What is guarded is known from the tasks that this machine runs, before they start; who may connect,
// from the directory. So a task is never open for as long as the cell does not know of it yet.
//
// The package does no I/O. Its functions may be called from any goroutine.
package policy
