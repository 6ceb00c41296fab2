// Package thread runs functions on operating system threads of their own, such as those
// that enter another namespace, or become another user.
//
// In: a function. Out: its error. Each call has a goroutine of its own, and any number may
// be made at once. It must never let the first thread of the process leave its namespaces.
package thread
