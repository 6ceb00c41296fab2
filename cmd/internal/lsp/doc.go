// Package lsp is a language server for config repositories: it publishes the mistakes that
// muster validate finds, on each change, and passes all else to another server, which is
// that of CUE.
//
// In: the messages of an editor, and of the other server. Out: the same messages to each
// other, and diagnostics of all files of the repositories that documents are open of. It
// reads files as they are, with the text of open documents in their place, and writes none.
// Serve is the whole life of a server; its goroutines end before it returns, but for the one
// that reads from the editor, which ends with what it reads.
package lsp
