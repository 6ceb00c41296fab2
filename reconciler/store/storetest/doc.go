// Package storetest is an etcd cluster for tests of what speaks to one: real
// members on loopback that want client certificates.
//
// In: a test, and how many members. Out: their addresses and the files of a
// client. A test's goroutine calls it; nothing but tests may.
package storetest
