// Package trash removes what tasks have left on a machine's disk, whatever they
// have made there: trees that are deeper than a path may be long or a process may
// have files open, directories with a million entries, directories without
// permissions.
//
// A Bin is a directory. Put moves a tree into it by one rename, after which it is
// gone as far as its old place is concerned. Run, in a goroutine of its own, removes
// what is there, also what an agent before it has left, with at most three
// descriptors: a directory that is not empty is moved up beside its parent, so that
// nothing is ever more than two levels deep. What cannot be removed is reported
// once, counted, and tried again more and more rarely; it is never a reason for an
// agent not to start.
//
// Put and Status may be called from any goroutine, Run once. What is put into a Bin
// must be on its file system, and no process may still use it.
package trash
