// Package atomicfile writes files that are whole and there after a crash of the
// machine.
//
// In: a name and what the file shall hold. Out: the file, or what it held before.
// Write is for state that one process owns: it takes the room that was reserved for it
// before it asks for more, and whatever is in its way is moved aside. WriteFrom is for
// long files, and for those that several processes write.
//
// It keeps nothing, and its functions may be called from any goroutine, for another
// file each. Master, agent and keeper write with it, so it lies below all of them. It
// links the standard library only, since it is part of each keeper, and never waits
// for more of the disk than the file and its directory.
package atomicfile
