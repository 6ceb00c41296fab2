// Package scaffold holds the config repository that `muster init` writes, and
// knows which of its definitions another version wrote or a user edited.
//
// In: the name of the CUE module and of the cell; or the definitions of a
// repository. Out: paths and contents; or how each file compares. The result
// compiles, formats and vets clean as it is, and its jobs run on any machine
// with /bin/sh and one core.
//
// The package keeps no state, does no I/O and is safe for concurrent use.
package scaffold
