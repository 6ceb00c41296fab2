// Package fastforward plays a workload in a cell: jobs arrive, run and end, machines fail and
// come back, and a day passes in a moment.
//
// In: a workload, with when jobs arrive and how long they last, and how often machines fail.
// Out: a Result: what is allocated and used, what runs and is pending, and what is evicted,
// over time; how long tasks wait.
//
// What is decided is decided by reconciler.Master, on the simulated machines of reconciler/plan.
// Jobs come in commits, a minute's arrivals in each, and are removed once they have ended. What
// is assumed is this: images are there; a task that is evicted begins anew; a machine that
// comes back is empty; machines report every 5 s what has changed, and less often where hundreds
// of tasks wait; there is no quota. What tasks do not use is reclaimed only where that is asked for, since the
// master of this release reclaims nothing by itself: then machines say each minute what tasks use,
// and end tasks where memory is short. All jobs say "rebalance: false", and no moves are searched for: where tasks wait,
// that would take most of the time.
//
// It is pure: no I/O, no clock, no global randomness, no goroutine.
package fastforward
