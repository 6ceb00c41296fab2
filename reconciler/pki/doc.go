// Package pki is a cell's certificate authority: a directory of files, and what
// a master does with it.
//
// In: names and lifetimes (Init, Issue, Token, Revoke, for `muster pki`); join
// tokens and certificate requests of machines (Authority, for the link). Out:
// PEM files, certificates, and whether a peer is still welcome.
//
// The directory holds ca.pem and ca.key, master.pem, which is what the master
// shows, and revoked. A PEM file that is issued holds all that its holder needs:
// certificate, authority and key. A running master sees changes of master.pem
// and revoked without a restart, within a second.
//
// What must outlast the master is in the store: a document token/… for each
// join token that was used, so that it is burnt once for all, and one
// member/NAME with the key that a machine joined with, so that a machine that
// joins again takes its name from the one before.
//
// Authority and Source may be used from any goroutine. Files are written whole
// and durably. The package never writes a machine's key: that is made there and
// stays there.
package pki
