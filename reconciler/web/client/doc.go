// Package client speaks to the master's HTTP API, for the command line.
//
// In: the master's URL and what is wanted. Out: the same types that the master
// shows. Every error that a person can do something about is an *Error with a
// hint. It imports nothing of the master but its plain types, holds no state
// beside idle connections, and may be used from any goroutine.
package client
