// Package sim runs a whole cell without a clock, a disk, a network or a
// process: the cores and the store's rules are the real ones, the machines and
// what runs on them are data.
//
// In: a seed, and what happens: commits good and bad, kills, crashes between
// any two writes of a master or actions of an agent, silence, restarts of
// machines, messages that are late and overtake each other, masters that do not
// know that they were replaced, ports in use. Out: a history, and an error for
// the first invariant that does not hold (see check.go and oracle.go). The same
// seed gives the same history, byte for byte. A World belongs to one goroutine.
//
// A master here steps only when there is news or its Wake has come, and is held
// against what a step would have done in between. A Mutant plants a bug at one
// of the seams; a test says how many seeds it takes to find each.
package sim
