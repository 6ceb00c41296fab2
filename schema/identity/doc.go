// Package identity says who is who in a cell: the names that stand in
// certificates, the roles they give, the join token, and how each end of a
// connection checks the other.
//
// In: certificates, tokens and TLS states as they came. Out: names that were
// checked, configurations for crypto/tls, and errors that say what was wanted,
// with the clock's time where time is the trouble. Master, agent and command
// line share it, so that both ends mean the same.
//
// A certificate's holder is its one URI, muster://CELL/ROLE/NAME. Only TLS 1.3
// is spoken. The package reads no file and opens no connection; what changes
// while a process runs (certificates, authorities) comes through functions that
// are called for each handshake. All functions may be called from any goroutine.
package identity
