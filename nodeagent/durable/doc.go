// Package durable keeps documents: JSON files with a checksum, which are whole and
// there after a crash of the machine.
//
// In: a file, what its document is called, and a value. Out: the value; or that the
// file was damaged, lost or put in another's place since it was written.
//
// It keeps nothing; one process writes a document at a time. It links the standard
// library only, since it is part of each keeper.
package durable
