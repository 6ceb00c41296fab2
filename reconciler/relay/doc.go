// Package relay lets each master of a cell hold sessions of agents: it carries what they
// say to the master that leads, and what that wants them told back to them.
//
// A Shard is one master's end: the Master of its link server, which it tells apart from
// whoever leads. A Hub is the leader's end: it knows which shard holds which machine. A
// leader has both, and they call each other; the Shard of another master reaches the Hub
// over gRPC (Service), beside the leader's agents.
//
// In: sessions and reports of link servers; views of the loop that leads. Out: words of
// sessions for that loop, views for link servers. Sessions stay open while nobody leads,
// and are resumed at the next leader (package shard says how). They end when the leader is
// there for others but not for this master: their agents then find another one.
//
// All methods may be called from any goroutine. Calls over the network are trusted as
// far as the link server lets in no one but masters.
package relay
