// Package plan says what a cell would do: it runs the master that runs cells, on the state
// of one, with machines that are simulated, in virtual time, until nothing happens any more,
// or before AppointmentLimit is over.
//
// In: a cell as a checkpoint has it, and a commit, or what happens to machines. Out: an
// Outcome: which tasks start, stop, restart and move, in which order and when; who is
// preempted; what stays pending, and why; how rollouts go, and how many tasks of a job are
// down meanwhile; quota and machines before and after.
//
// What is decided is decided by reconciler.Master, and by nothing here. What is assumed is
// this: a task starts 0.1 s after its machine has the assignment, ends 0.1 s after it
// is to stop, and is healthy as long after its start as the tasks of its job with the same health
// check were, in the median of what machines have said when the cell begins. Where they have said
// nothing it passes each of its checks at once, so that it is healthy as soon after its start as
// their interval and successes allow, and 0.1 s at the least; it is never healthy earlier. Batch tasks do
// not finish. So times are estimates, and short ones.
//
// It is pure: no I/O, no clock, no randomness, no goroutine. A Cell belongs to one goroutine.
package plan
