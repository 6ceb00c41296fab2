// Package peer carries blobs of images and packages between machines of a cell, over HTTP and
// TLS with the certificates that machines show their masters.
//
// In: a store with copies of blobs, the address and name of a machine as a master says them.
// Out: the blob, from any byte on.
//
// A Server gives what the store has to machines of its cell and to nobody else, in at most Most
// uploads at once. Who asks for more, or for a blob that is still coming, is sent away with that,
// or waits for it a little.
//
// A Client asks one machine, and believes it only if it shows the certificate of the machine that
// was asked for. Whether what comes is what was asked for is not looked at here: the store
// verifies it, as it does what registries send.
//
// All methods may be called from any goroutine.
package peer
