// Package netfilter is what those share who program tables of nftables with
// github.com/google/nftables: how large their messages and sockets are, and what the library
// leaves as it is in messages. It opens connections, whose users are their callers, one at a time.
// It knows no table, and must never change one.
package netfilter
