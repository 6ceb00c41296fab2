// Package secrets opens the secrets of a cell, with the identities of a file that only
// its masters have.
//
// In: compiled commits, and secrets as they are in the data of jobs. Out: for each secret
// of a commit its version, a keyed digest of the plaintext, or why it cannot be opened
// (Opener.Take); and a secret sealed again for one machine (Opener.SealFor).
//
// A plaintext leaves the package sealed, or as a digest, and in no other way: it is in no
// error and in no log, and what is remembered between calls are digests. The file is read
// for each commit, so a new identity in it needs no restart. All methods may be called
// from any goroutine.
package secrets
