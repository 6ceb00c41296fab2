// Package loop is the one goroutine that owns a cell's state and calls the
// core.
//
// In: heads and trees of the repository, what machines say over the link, the
// clock. Out: fenced transactions to the store, a view pushed to each machine
// whose assignments changed, lines for the event log, and a Status for whoever
// asks. A view is pushed only after the store has taken what it says.
//
// Loop's methods may be called from any goroutine: they send a message to the
// owner and wait for its answer. Everything that decides is in package
// reconciler; nothing here does more than carry.
package loop
