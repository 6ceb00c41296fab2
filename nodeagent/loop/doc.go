// Package loop is the one goroutine around a nodeagent.Agent: it passes it what happens,
// and carries out what the agent wants done. It decides nothing.
//
// In: assignments (Assign), the machine's disk, what the Runtime says of
// processes, health checks, the clock. Out: started and stopped tasks, files
// under the state directory, and immutable reports (Report). What it must not
// forget it writes durably before it acts on it: the view before it is obeyed,
// an assignment before its first start, a stop's cause before its signal, an
// end before it is reported. So an agent that is killed between any two of
// these is replaced by one that reads the disk and goes on, with or without a
// master.
//
// New reads the disk and takes the state directory's lock; Run is the
// goroutine. Everything else may be called from any goroutine. Starts, health
// checks and logs run in goroutines of their own, which only send results.
//
// It never kills a task by ending: only StopAll stops tasks.
package loop
