// Package hosttest makes what tests of tasks need of a machine: a file system with
// project quotas.
//
// In: a test. Out: where it is; it is gone when the test ends. A test's goroutine calls
// it; nothing but tests may.
package hosttest
