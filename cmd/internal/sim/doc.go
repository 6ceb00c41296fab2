// Package sim runs a whole cell without a clock, a disk, a network or a
// process: the cores and the store's rules are the real ones, the machines and
// what runs on them are data.
//
// In: a seed, and a history, which is a list of actions (see Action): commits
// good and bad, kills, writes that fail or are lost at every durable write of a
// master and of an agent, links that are cut, delay, repeat and reorder, clocks
// that jump, stores and repositories that are slow, gone or set back, masters
// that are stopped, or replaced without their knowledge and go on, releases that
// follow each other, and machines that restart, fill up, are in trouble, overloaded,
// slow to bring packages, refused secrets, lost, forgotten, replaced or asked for their
// name. Out: what happened, and an error for the first invariant that does not hold (see
// check.go, oracle.go and, for which promise of the pages each holds,
// promises_test.go). The same seed
// gives the same history, byte for byte. A World belongs to one goroutine.
//
// A master here steps only when there is news or its time has come, and is held
// now and then against what a step would have done in between. A machine turns
// only when something can happen there. A Mutant plants a bug at one of the
// seams, the files in mutants/ plant others into the source; tests say how many
// seeds it takes to find each. A Script is a history that can be kept; Shrinking
// makes one that fails as short as it can be.
package sim
