// Package control decides: Step compares what is desired with what is assigned and
// observed, and returns what to write next. There is one file for each controller:
// machines and the rescheduler, rollouts and canaries, disruption budgets, drains,
// restarts, system jobs, alloc sets, overload, repair of spread, placement.
//
// In: the State, what is desired, the Observed, the time and a seed (Input), and what the
// step before has found out (Memo), which only spares work. Out: documents to write, in
// order, events, reasons, and when to step again (Output). Nothing of it has happened yet.
//
// Facts answers what is so, as the controllers see it, and decides nothing.
//
// It is pure. A Memo belongs to one goroutine at a time.
package control
