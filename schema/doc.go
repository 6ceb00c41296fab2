// Package schema holds the words of a cell as plain data, and the rules that
// make such data valid.
//
// In: nothing. Out: types that every other package speaks: what a commit
// declares (Job, Quota, Tenant, Cell), what the store keeps (Head, JobRecord,
// Chunk, MachineRecord), what agents report (Report) and what users see
// (Diagnostic, Event). All of them have one JSON form, the canonical one
// (see Canonical), and a Digest of it is their identity.
//
// The package does no I/O, starts no goroutine, reads no clock and keeps no
// state, so all functions are safe for concurrent use on values that nobody
// writes. It imports nothing of ours.
package schema
