// Package reference writes the pages of docs/reference that are made from the
// code: commands and flags, and metrics. (docs/reference/schema.md is made by a
// test of schema/compile, the only package that reads CUE.)
//
// In: cobra commands, and what the metrics of master and agent say of
// themselves. Out: Markdown. Section holds a page, or a part of it between two
// marks, to what it should be: a test fails when the page is stale, and writes
// it when it is run with -update, which `make generate` does.
//
// It is for tests, keeps no state, and writes nothing but that page.
package reference
