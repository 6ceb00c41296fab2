// Package sources says from where machines get the images and packages that they are to bring: from
// each other, and few of them from the registry.
//
// In: the questions of machines, and what machines hold. Out: for each question the machines to
// ask, and whether the registry may be asked.
//
// What nobody holds yet is fetched from the registry by Most machines; all others get it from
// those, and from each other, as it comes. A machine that could give nothing to others may ask
// the registry at once where nobody else has it either. Whoever goes on without anything coming is
// sent to the registry in the end: in turn, for such machines take the same Most places.
//
// Desk is a state machine without a clock, and for one goroutine. It must never hold up a machine
// for good. What it remembers is worth
// some seconds, and nothing is wrong without: a new master has the registry asked Most times more.
package sources
