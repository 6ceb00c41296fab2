// Package cell wires one whole cell: it is the only place that knows every
// part, and the only thing it does is put them together.
//
// In: a MasterConfig, and for a cell in one process an AgentConfig too. Out:
// a daemon that runs until its context ends. RunMaster is `muster master`;
// RunDev is `muster dev`, master and agent in one process that speak over the
// same socket as two processes do.
package cell
