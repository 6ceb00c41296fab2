// Package nodump keeps what a process has in memory out of core files: agents and masters
// have secrets there.
//
// Nothing goes in; what comes out is an error if the kernel refuses. Set is called once, before
// the process reads a key. It is of the whole process, and may be called from any goroutine.
package nodump
