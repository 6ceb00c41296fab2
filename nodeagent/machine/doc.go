// Package machine finds out what a machine is, beyond what its cgroups and users
// can do: processors, memory, disks, GPUs, and what of it is kept for the system.
//
// In: /proc, /sys and /dev, below a root that tests choose, and the state directory. Out:
// attributes and groups of devices for schema.MachineInfo, with notes on hardware that
// tasks cannot use. What the kernel does not show is left out, never guessed.
//
// It reads a few files at each call, keeps nothing, and may be called from any
// goroutine.
package machine
