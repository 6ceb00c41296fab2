// Package replica lets each master of a cell answer those who ask it, whoever leads: the
// one that leads pushes the state of the cell to the others, and its history, and answers
// what they cannot.
//
// A Server is the leader's end: gRPC calls it, beside the relay of sessions. A Copy is the
// end of another master: the state as it was pushed last, with its age; the history, which
// it hands to the log of its own master; and the way to the leader's API.
//
// In: the leader's snapshots and its log of events. Out: the same at the other masters. A
// state that is a moment old is told with its age, and never as one of the leader's own.
//
// All methods may be called from any goroutine. Calls over the network are trusted as far
// as the link server lets in no one but masters: who makes a request that is forwarded was
// checked by the master that forwards it.
package replica
