// Package hollow is machines that are not there: each is the agent's core over the
// real link, and has memory where a machine has a disk and processes. They are for
// trying a large cell on one machine, and for measuring a master.
//
// In: a Config: how many machines, and by which pattern tasks start, end and use
// resources, and machines fail. Out: what a master of such a cell would see: joins,
// reports with their digests, hints, samples of usage; and, for who measures,
// a call for each start and end of a task.
//
// What a machine is, its name, rack, size and attributes, is a function of the seed
// and its number, and so is its id: a fleet that is started again is the same machines,
// rebooted, with nothing on their disks. What happens is drawn from the seed, too, but
// at times that depend on the master.
//
// A hundred machines share a connection, a goroutine and a heap of what is due: a machine
// to which nothing happens costs its answers to the master. A real loop (nodeagent/loop)
// for each would cost a state directory with synced files for each task, and
// some goroutines and timers each second.
//
// New, Run once, and the other methods of a Fleet from any goroutine.
package hollow
