// Package sealed opens and seals secrets: age files (age-encryption.org/v1), in the
// armored form in which they are in a config repository.
//
// In: ciphertexts, the text of files with identities, recipients as users write them.
// Out: plaintexts, armored ciphertexts, and what can be known of a ciphertext without
// a key. Master, agent and command line share it, so that all mean the same; Inspect
// alone needs neither key nor randomness, and serves whoever checks a commit.
//
// An age file says who can open it, and not whose it is: who can read a repository
// could copy another's ciphertext into an object of their own, and have the cell open
// it for them. So what is sealed for an owner says so in its header, which cannot be
// changed without the file's key.
//
// The package reads no file and logs nothing, and no error has a part of a
// plaintext or an identity. All functions may be called from any goroutine.
package sealed
