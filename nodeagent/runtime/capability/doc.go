// Package capability knows the capabilities of Linux that tasks can have, as the kernel counts
// them.
//
// In: names as jobs have them, without CAP_. Out: bits, names as an OCI runtime has them, and which
// of them a machine can offer. Its functions may be called from any goroutine. It gives none to
// anybody.
package capability
