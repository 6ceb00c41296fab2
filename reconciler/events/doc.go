// Package events is the cell's history: an append-only log of events in the
// master's data directory. Events never go to the store.
//
// In: events (Append; Intend and Settle). Out: records with rising ids, by cursor and filter
// (Since), and a way to wait for more (Wait). The log is JSON lines in segment
// files named after their first id; the oldest are removed so that all of them
// together stay below a bound. The newest records are kept in memory too.
//
// Append never waits for the disk: Run writes what was appended every so often, and Since
// before it answers, so no reader sees an id that a master that is killed would give again.
// What was appended last may be lost with the master. Events of a decision must not be
// lost: they are written before that is stored (Intend), and appended when it is (Settle),
// or by the next Open. An incomplete line after a crash is skipped.
//
// All methods may be called from any goroutine.
package events
