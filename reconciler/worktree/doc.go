// Package worktree is the source of a cell that follows the files of a
// directory as they are, commit or not: every save counts. The directory need
// not be a git repository.
//
// In: a directory, and how to read it. Out: model.Seen values, whose
// commit is the digest of what matters of the files, and the schema.Tree of the
// newest of them. A change of a file that does not matter is none.
//
// reconciler/fswatch watches every directory that is not hidden. A burst of events is one
// look, and a look reads everything: so events that were lost, in a queue that
// was full or between the making of a directory and its watch, cost nothing.
// Where the system has no watches left the directory is read every second, and
// the status says so.
//
// A Dir may be used from any goroutine, but Run once at a time. Nothing here
// ever writes to the directory.
package worktree
