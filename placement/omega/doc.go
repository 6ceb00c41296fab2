// Package omega repeats the experiment of the Omega paper (Schwarzkopf et al., EuroSys 2013,
// sections 4 and 5) with muster's placement: how often do schedulers that share a cell get into
// each other's way, how busy are they, and how long do jobs wait, when decisions take so
// long? Beside schedulers that share the state there are a monolithic one and a two-level one,
// which offers resources.
//
// In: a Config, of one cell, its jobs and its schedulers. Out: a Result, or a Table of many. Time
// is virtual: what a decision takes is said, not measured, so a Result is a function of its
// Config. It does no I/O, and each Run is one goroutine's.
package omega
