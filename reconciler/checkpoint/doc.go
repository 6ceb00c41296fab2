// Package checkpoint writes a whole cell to a file, and reads it: what is stored (desired,
// assigned, progress, quotas, machines), what machines have said last, and what they use.
// A checkpoint is looked at by the code that looks at a live cell, and planned on by the
// master that runs one.
//
// In: the state and what is observed of a cell at one moment. Out: a stream of a format
// that docs/decisions/0035 has, and that later releases read; and what such a stream holds.
// A stream that was cut short is an error, never a smaller cell.
//
// Values of environment variables, the contents of files and the ciphertexts of secrets are
// replaced in it unless they are asked for: see Redactor. Nothing here reads a clock or a
// file. A Cell is not written to by those who look at it, and may be used by several
// goroutines.
package checkpoint
