// Package credential keeps a machine's key and certificate: what it shows the
// master of its cell over TCP.
//
// In: a join token in a file, and the certificates that the master gives. Out:
// configurations for crypto/tls, certificate requests, and who the machine is.
//
// The key is made here, is never sent, and is on disk before anything is asked
// for with it: an answer that is lost is asked for again with the same token and
// key, which is the same join. The file identity.json of the state directory,
// mode 0600, is replaced whole, so it holds a key and a certificate that belong
// together at any moment. join.json is there while a join is in progress.
//
// A token is looked at when there is no certificate that can be used, and the
// one that gave the present certificate is not tried again; so the same file may
// be named at each start, and a new token in it takes effect without a restart.
//
// All methods of Store may be called from any goroutine. The package opens no
// connection and never asks twice by itself.
package credential
