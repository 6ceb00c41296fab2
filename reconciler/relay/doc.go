// Package relay lets each master of a cell hold sessions of agents: it carries their
// reports to the master that leads, and that master's messages to them.
//
// A Shard is one master's end: the Master of its link server, whichever master leads. A Hub
// is the leader's end: it knows which shard holds which machine. A leader has both, and
// they call each other; the Shard of another master reaches the Hub over gRPC (Service),
// beside the leader's agents.
//
// In: sessions and reports of link servers; views of the loop that leads. Out: updates of
// sessions for that loop, views for link servers. Sessions stay open while nobody leads,
// and are resumed at the next leader (see package shard). They end when other masters reach
// the leader and this one does not: their agents then connect to another one.
//
// All methods may be called from any goroutine. Calls over the network are trusted as
// far as the link server lets in no one but masters.
package relay
