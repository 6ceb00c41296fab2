// Package logfile keeps what a task writes to one of its outputs, in files of
// bounded size and number, and reads it back.
//
// In: chunks of bytes, as they come out of a pipe. Out: in a directory, the
// newest of them in segments. The segment that begins at byte 0 of the log has
// the log's name, a later one that and the number of bytes before it: stdout,
// stdout.4194304. So a place in a log is a number that means the same for ever,
// whatever was removed since, and a reader that comes back to it misses nothing
// and sees nothing twice. Beside each segment that is written to lies its index of times.
//
// A Writer never errs: what the disk does not take it drops and counts, and it
// says so in the log as soon as there is room. It allocates nothing while all
// goes well. A Writer belongs to one goroutine, and a log has one for its life;
// a Reader belongs to one goroutine, and there may be many, in other processes.
//
// The package links the standard library and golang.org/x/sys only: there is a
// keeper for each task of a machine.
package logfile
