// Package servicestest makes services for tests and benchmarks, at random and of any number, and
// says whether a kernel has what they ask for, by a reading of them of its own. All of it is pure, and
// may be called from any goroutine.
package servicestest
