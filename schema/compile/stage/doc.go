// Package stage counts what an evaluation takes for its package and for the policies that are for it, each apart.
//
// In: what the process has used, when it goes from one to the other, and which policy it is at. Out: whether one of
// them has used more than it may, and lines that say which policy that was, with what reads them. Several goroutines
// may use it. It ends nothing, and reads no clock of its own.
package stage
