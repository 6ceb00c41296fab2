package web

import (
	"context"
	"net"
	"net/http"
)

// As returns a request that comes from a user of this machine, over TCP.
func As(uid uint32, r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{uid: uid}))
}

// BySocket is As for the unix socket.
func BySocket(uid uint32, r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{uid: uid, unix: true}))
}

// WithPeer is withPeer.
func WithPeer(ctx context.Context, c net.Conn) context.Context { return withPeer(ctx, c) }

// MaxWatches is maxWatches.
const MaxWatches = maxWatches

// MaxTaskConns is how many connections of tasks are kept.
const MaxTaskConns = maxTaskConns

// MaxWhole is maxWhole.
const MaxWhole = maxWhole
