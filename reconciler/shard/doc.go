// Package shard is what a master's link shard knows of its sessions, as a state machine:
// which there are, and which updates of them the leader is to get.
//
// In: sessions that are opened and closed, what their machines report, and that another
// master leads (Attach). Out: updates of the sessions for the leader (Next), and which
// views the machines do not have yet (View).
//
// A session outlives the leader that welcomed it. With the next leader it is resumed, with
// the epoch that the store has, and the last report from memory. So a machine neither joins
// nor reports again because another master leads.
//
// Sessions does no I/O and reads no clock. It belongs to one goroutine, or to whoever
// holds its lock.
package shard
