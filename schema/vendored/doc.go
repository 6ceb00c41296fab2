// Package vendored is what a config repository has of other CUE modules: their
// files below cue.mod/pkg, and cue.mod/vendor.json, which says of each where it
// is from and what the sum of its files is.
//
// In: the bytes of these files. Out: a Lock, sums, or where and what is wrong.
// The functions are pure, and may be called from any goroutine. Nothing here
// fetches, reads a disk or parses CUE.
package vendored
