// Package history holds what was planned for each commit and what the cell then did, side by
// side.
//
// In: a commit with the cell as it was before the master took it (Begin), and when it had
// converged (Converged). Out: Entries of the newest commits, and for one of them a Comparison:
// which tasks did what the plan says, which did not, and what in the events says why.
//
// A plan is made by a process of its own (Planner, Child), which has less of the processor
// than the master and a limit of time, one at a time: what it costs, and how it may end, is
// nothing to the master. What happened is read from the events: Compare is a function of a
// plan and of records, and of nothing else.
//
// A Keeper may be called from any goroutine; Converged does not wait for a disk, so that the loop may
// call it.
package history
