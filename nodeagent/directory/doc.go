// Package directory holds the cell's directory on a machine: changes from the master go in, and
// snapshots out to all who act by them, such as DNS and services. When all of them do, whoever
// brought the change is informed.
//
// Apply and Digests may be called by one goroutine at a time, Snapshot by any. Nothing is on disk: an
// agent that starts has an empty directory, which nobody acts by, until a master sends one.
package directory
