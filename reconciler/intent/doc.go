// Package intent says what is wanted of a cell: what the packages of the head declare,
// with the overlays that say otherwise, in their order (Held, Suspended, Retained,
// Returned). Each job says which of them has set it.
//
// In: a compiled commit (Adopt, Take) or the State. Out: the writes that make a commit
// the head, with what a guard holds; what is desired (Of, Cache); and what a change of it
// does to tasks (Diff, Compare). What there is room and quota for is not asked here.
//
// It is pure. What it returns is shared, and must not be written to.
package intent
