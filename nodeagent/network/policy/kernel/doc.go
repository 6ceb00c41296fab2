// Package kernel programs nftables so that only those connect to tasks of a machine who may, as a
// policy.State says. One change is one transaction: the kernel has all of it, or what it had before.
//
// An agent that starts reads what the one before it has programmed, and makes the difference. A
// table that is not as this package makes it is made anew, in the transaction.
//
// A Programmer has one owner at a time, whose thread is in the network namespace that is programmed.
package kernel
