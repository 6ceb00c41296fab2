// Package directory holds the cell's directory on a machine: changes from the master go in, and
// snapshots out to all who act by them, such as DNS and services. When all of them do, whoever
// brought the change is informed.
//
// It is on the machine's disk, too, in shards: Run writes those that have changed, soon where
// that is little and within some seconds where it is much, and Open reads them, so that names are found by an agent that starts while no master
// answers. Followers get nothing of that before the first change of a master, which may be an empty one:
// what is on disk may be older than what they have done. What could not be read or is out of date is sent
// again by that master, which compares digests.
//
// Apply may be called by one goroutine at a time, all else by any.
package directory
