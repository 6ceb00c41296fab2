// Package workload makes up the work of a cell, and its machines, as those are that run in
// large shared clusters: machines of several shapes and racks; long-running production
// services, batch jobs and best-effort jobs of many users; a few jobs with nearly all of the
// work and very many short ones with nearly none; requests that are larger than what is used.
//
// In: a Config with a seed. Out: a Workload, the same for the same Config. docs/evaluation.md
// says which distributions are drawn from, and which published numbers they are after.
//
// It is pure: no I/O, no clock, no global randomness, no goroutine.
package workload
