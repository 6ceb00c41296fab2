// Package edit changes one value in a file of a config repository and leaves all else as it
// is: comments, order, and the format, which is that of cue fmt where it was before.
//
// In: the text of a file of CUE, JSON or YAML, and what is to be written where. Out: the new
// text, or why that cannot be done. The syntax tree says where to write. The package
// evaluates nothing: that a change means what it should is for the caller to see. All of it
// is safe for concurrent use.
package edit
