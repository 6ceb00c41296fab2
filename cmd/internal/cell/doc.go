// Package cell wires one whole cell: it is the only place that knows every
// part, and the only thing it does is put them together.
//
// In: a MasterConfig, or for a whole cell a DevConfig. Out: a daemon that runs
// until its context ends. RunMaster is `muster master`; RunDev is `muster dev`,
// a master in this process and a muster-agent as its child.
package cell
