// Package sim runs a whole cell without a clock, a disk, a network or a
// process: the cores and the store's rules are the real ones, the machines and
// what runs on them are data.
//
// In: a seed, and what happens (commits, kills, crashes, silence). Out: a
// history, and an error for the first invariant that does not hold. The same
// seed gives the same history, byte for byte. A World belongs to one goroutine.
package sim
