// Package control decides: Step compares what is desired with what is assigned and
// observed, and returns what to write next. There is one file for each controller:
// machines and the rescheduler, restore, admission, what becomes of rollouts (judge),
// scale and system jobs, placement and preemption, overload, drains, rollouts, alloc sets
// and rebalancing, repair of spread, restarts, suspensions. Each has a pass: the facts, the
// draft and the timers, and what it needs beside that. The order is in step.go.
//
// In: the State, what is desired, the Observed, the time and a seed (Input), and what the
// step before has found out (Memo), which only spares work. Out: documents to write, in
// order, events, reasons, and when to step again (Output). Nothing of it has happened yet.
//
// It is pure. A Memo belongs to one goroutine at a time.
package control
