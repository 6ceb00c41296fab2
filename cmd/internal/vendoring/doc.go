// Package vendoring brings CUE modules of others into a config repository's work tree.
//
// In: the directory of the repository, and where a module is: a directory, or a
// git repository with a tag, branch or commit. Out: the module's files in
// cue.mod/pkg and its line in cue.mod/vendor.json, or what is held against
// these. What the files must be like is schema/compile's and schema/vendored's
// to say.
//
// A Repository is used by one goroutine at a time. Nothing is committed, and
// what is wrong with a module is said before a file is written.
package vendoring
