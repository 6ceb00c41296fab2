// Package imagetest makes images, and a registry that fails when it shall, for tests of
// what runs them.
//
// In: a test, files for an image, faults of the registry. Out: references by digest. All
// of it is gone when the test ends. Methods may be called from any goroutine; nothing but
// tests may use it.
package imagetest
