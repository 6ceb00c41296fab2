// Package archive writes a file or a tree of files as a stream, and makes what such a stream
// says: for copies between a task and a user, of whom each believes little of what
// the other sends.
//
// In and out: a path and a stream. What is made is never outside of the directory that was
// named, whatever the archive has in it, and no link in it is followed. All of a call is in
// its caller's goroutine. The form is this package's own: archive/tar links os/user, and with
// that, where there is cgo, the C library, which the keeper must do without inside an image.
//
// It imports the standard library alone: the keeper has it, and runs it inside a task.
package archive
