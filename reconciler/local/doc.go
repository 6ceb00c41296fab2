// Package local is about connections within this machine: listening on unix
// sockets, and what the kernel says of who is at the other end.
//
// In: paths of sockets, and connections that were accepted or made. Out: listeners,
// and the numeric user of a peer. What the kernel does not say is an error, never a
// guess: whoever asks refuses then.
//
// All functions may be called from any goroutine. It holds no state, and never
// decides who may do what.
package local
