// Package cut leaves parts out of files of CUE, YAML and JSON: with spaces in their place, so that what stays has its line
// and column. Text and places go in, a copy of the text comes out; what cannot be found is reported, and nothing is cut then.
//
// All of it is pure and safe for concurrent use, but for Blank, which writes to the text that it is given. It must never
// move or change what stays: mistakes are compared by their places.
package cut
