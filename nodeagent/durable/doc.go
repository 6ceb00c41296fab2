// Package durable writes files that are whole and there after a crash of the
// machine.
//
// In: a name and what the file shall hold. Out: the file, or what it held before.
// A document is a file with a checksum: Documents tells one that was written so from
// one that was damaged, lost or put in another's place since.
//
// It keeps nothing; one process writes a file at a time. It links the standard
// library only, since it is part of each keeper, and never waits for more of the
// disk than the file and its directory.
package durable
