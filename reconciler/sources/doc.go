// Package sources says from where machines get the images and packages that they are to bring: from
// each other, and few of them from the registry.
//
// In: the questions of machines, each of which says which blobs the machine would get from the registry, what it gets
// there already, and what it has; and what machines hold. Out: for each question the machines to ask, and for which
// blobs the registry may be asked.
//
// A blob that nobody has is fetched by Most machines at once at most, and no more once one that can give it to others
// has it. So Most machines fetch it in all, unless a fetch fails or whoever fetched it is lost. A machine that
// gets nothing from those who have it waits while others are given something: only then, or after longest, it may
// fetch it, too, in turn with others to which nothing comes. One that could give nothing to others may fetch at once
// what nobody has and nobody is fetching who could give it. Agents of the release before do not say which blobs: they
// may ask the registry for all of what nobody has the whole of, Most of them at once.
//
// Desk is a state machine without a clock, and for one goroutine. It must never hold up a machine
// for good: who does not ask any more, and who fetches without anything coming, is replaced. Questions may be lost, and
// come in any order. What it remembers is worth
// some seconds, and nothing is wrong without: a new master has the registry asked Most times more.
package sources
