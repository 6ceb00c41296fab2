// Package synthetic makes config repositories of any size, for benchmarks and
// tests. In: how many packages of how many jobs. Out: the files, always the
// same for the same numbers. It does no I/O, keeps nothing, and any goroutine
// may call it.
package synthetic
