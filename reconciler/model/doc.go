// Package model holds what a master knows: State, the documents that are stored, and
// Observed, what agents have said since it began to lead.
//
// In: writes that the store has taken, reports, and the time. Out: the documents, what
// machines are to run (Views), how machines are, and events of what is new.
// Documents are never written to; Apply replaces them. There are no caches: what is
// found out from a State is kept by who asks for it, for as long as the documents that it
// is of are the same, as the counters of State and WrittenSince say.
//
// It is pure. A State and an Observed belong to one goroutine.
package model
