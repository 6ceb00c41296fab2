// Package secrets is what an agent needs for the secrets of its tasks: the machine's own
// key, for which a master encrypts them, and the place in memory where a task finds them.
//
// In go the ciphertexts that the agent keeps on its disk, out come files in a file system
// that is in memory: they are gone with the machine's power, with the incarnation, and
// nothing is mounted on the machine for them. Methods may be called from any goroutine, for
// different incarnations.
package secrets
