// Package strike stops a real process just before each thing that it does to what
// outlives it, and kills it there or has that fail. Only tests use it: what is
// struck is the very program that ships, with no hook in it.
//
// In: the program, and a function that is asked before each effect. Out: the path
// of a program that is the same and is traced from its first instruction on. The
// function is called by one goroutine at a time for all processes of one Tracer;
// the process stands still meanwhile, its children do not.
//
// A wait of this process for its child also returns the stops of one that is traced from
// here. So whoever starts what is struck polls a pidfd before it waits, as the agent's side
// of a keeper does, or has a shell in between.
//
// Program, beside that, writes a program that a test starts.
//
// It rests on ptrace(2), whose way to change a system call differs by
// architecture: it is there for linux/amd64, and Supported says so.
package strike
