// Package draft is what a step changes: a Draft of documents, with the events that go with
// them, and the order in which they are stored. Nothing decides in it.
//
// In: changes, one by one. Out: the writes of all of them, each prefix of which is a state
// that a master can go on from. What is in it is read through a facts.View.
//
// It is pure. A Draft belongs to one step, and one goroutine.
package draft
