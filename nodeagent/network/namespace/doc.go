// Package namespace makes network namespaces that files hold, so that they are there without a process.
//
// In: paths, and what to do inside. Out: nothing but errors. All functions may be called from any goroutine,
// with different paths.
package namespace
