// Package replica lets each master of a cell answer requests, whichever of them leads: the
// leader pushes the state of the cell and its history to the others, and answers requests
// that they forward.
//
// A Server is the leader's end: gRPC calls it, beside the relay of sessions. A Copy is the
// end of another master: the state as it was pushed last, with its age; the history, which
// it hands to the log of its own master; and the way to the leader's API.
//
// In: the leader's snapshots and its log of events. Out: the same at the other masters.
// Such a state is always shown with its age, so that nobody takes it for the leader's own.
//
// All methods may be called from any goroutine. Calls over the network are trusted as far
// as the link server lets in no one but masters: the master that forwards a request has
// checked who makes it.
package replica
