// Package rules holds the tests that keep the tree in shape: which package may
// import which, what the pure cores must not touch, what is documented, how
// long files and functions may be, how many files of a package may need each other
// (rooms), and which packages the small binaries link.
//
// In: the source files of this module, read and parsed once, and go list. Out:
// test failures that name the file, the line, the rule and the reason for it.
// The rules are tables with a reason beside each row; each rule is itself
// tested by planting a violation of it (see TestPlanted), since a rule that
// cannot fail protects nothing.
//
// The package has no code outside its tests. It never writes, except its own
// golden files when run with -update. It depends on files that are not part of
// its own package, so run it with -count=1.
package rules
