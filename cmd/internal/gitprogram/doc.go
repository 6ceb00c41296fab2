// Package gitprogram makes revert commits with the git program, since a revert
// merges files, which go-git cannot.
//
// In: the directory of a repository and a commit. Out: a new branch of that
// repository, or an error that says what conflicts. The work is done in a
// temporary clone that shares the repository's objects: its work tree, index and
// HEAD are never touched, and until Publish nothing is written to it.
//
// A Clone may be used from one goroutine at a time, and must be closed.
package gitprogram
