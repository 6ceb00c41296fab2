// Package machine finds out what the machine is that the agent runs on: its
// name, boot, capacity and attributes.
//
// In: the kernel's files and calls, and a directory on the disk that tasks will
// use. Out: a schema.MachineInfo. It keeps nothing, writes nothing and starts
// nothing; it may be called from any goroutine.
package machine
