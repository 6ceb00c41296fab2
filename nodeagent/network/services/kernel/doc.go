// Package kernel has the kernel of this machine send connections to services to their endpoints:
// it programs what package services plans as a table of nftables, reads back what is there, and
// resets connections to tasks that have ended.
//
// A Follower does so for snapshots of a directory.
//
// A cell has one table of its own on a machine, which no one else changes. A change is one
// transaction: whoever is killed, packets meet the state before it or after it. The
// data path is the kernel alone, and keeps working without the agent.
//
// All functions act in the network namespace of the calling thread; a Programmer is used in one
// only. It has one owner at a time.
package kernel
