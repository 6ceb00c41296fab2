// Package repofiles writes files into a config repository's work tree.
//
// In: a directory, and files by path. Out: the files on disk. Add writes new
// ones, and never in the place of anything; Replace writes over old ones, each at
// once. Both write all or none. Neither follows a symbolic link that lies below the
// directory.
//
// The functions may be called from any goroutine, though not two for the same
// directory. They do no more than file system calls: nothing is committed.
package repofiles
