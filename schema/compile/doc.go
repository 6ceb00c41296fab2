// Package compile turns the tree of a commit into plain data. It is the only
// place where CUE is evaluated, and the only importer of the CUE library.
//
// In: a schema.Tree. Out: a schema.Compiled: for each directory with CUE files
// its objects, or located diagnostics. The same tree gives the same bytes,
// whatever the number of workers and the state of the cache.
//
// The way of a package: plan.go finds what it depends on and its key; what the
// cache does not know goes to a child process (worker.go, child.go), since the
// CUE library cannot be cancelled and does not bound what it uses; the child
// loads and evaluates the package from the files it was sent (evaluate.go),
// turns values into data (export.go) and mistakes into diagnostics
// (diagnose.go, position.go); the parent checks the data again (accept.go),
// because users can edit the definitions in their repository.
//
// Set, Images and ReplaceImages are for who edits a work tree. The last two read and write the text
// of one file, and evaluate nothing.
//
// A Compiler is used by one goroutine at a time; it starts and ends its own
// child processes within Compile. Child is the whole life of such a process.
// The package never reads a disk (but for ReadDir), a network or the
// environment, and never lets one package's trouble reach another's data.
package compile
