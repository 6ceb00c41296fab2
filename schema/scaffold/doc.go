// Package scaffold holds the config repository that `muster init` writes.
//
// In: the name of the CUE module and of the cell. Out: paths and contents. The
// result compiles, formats and vets clean as it is, and its job runs on any
// machine with /bin/sh.
//
// The package keeps no state, does no I/O and is safe for concurrent use.
package scaffold
