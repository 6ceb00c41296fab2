// Package nodeagent is the core of the agent: what one machine shall run,
// compared with what it holds, becomes what to do next and what to report.
//
// Agent is a state machine around that: what happened goes in, and Ready hands out
// what is to be done as data, with what must be on disk before. Its heart is Decide.
//
// Decide, in: the View (assignments that the master sent, with their version), what
// the machine's disk and process table say (Held), and the time. Out: a Plan:
// actions, the entries of the report, and when to ask again. It remembers
// nothing beyond its arguments, so an agent that is killed at any instant is
// replaced by one that reads its disk and calls the same function. The agent,
// the hollow machine and the simulator share it.
//
// The rules it keeps: one live process of a task at a time, whatever the generations; a
// generation that is not in the view is stopped; an end is reported only once it is on
// disk, so that no generation runs again after the master was informed that it is dead.
//
// It is pure: no I/O, no clock, no randomness, no goroutine. An Agent belongs to one
// goroutine; functions write to none of their arguments, so that calls may run at the
// same time.
package nodeagent
