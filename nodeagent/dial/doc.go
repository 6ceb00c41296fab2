// Package dial connects the agent to others by TCP: to its master, and to the tasks
// whose health it checks.
//
// An address goes in, a connection comes out. It is of use where the kernel has no port
// left to give: tasks share those with the machine, and any of them can take all, by
// binding or by connecting. An agent that could not connect then would be given up by
// its master, with all its machine runs.
//
// Any goroutine may call it. It never listens.
package dial
