// Package link is the master's side of the link to the node agents: the link
// shard.
//
// In: views to push (Push), logs that are asked for (Logs), and agents that
// dial in (Serve). Out: calls of the Master that it was given: machines that
// join and leave, and what they report.
//
// A machine has one session at a time. The master gives each session an epoch,
// which it stores before the machine is welcomed. A newer session of the same
// process supersedes the older, which may not have noticed yet that it is over. The
// session of another process is asked first whether its agent is there: one that
// answers keeps the name, and the newer agent is refused; one that does not, as
// after a power cut, is closed. So two agents with one name do not take it from each
// other. Which names are free beyond that is for the Master to say.
//
// Views are pushed at once, the latest wins, and Push never waits for an
// agent. Reports are pulled: one at a time for each machine, every PullEvery,
// or at once when the agent hints that something changed.
//
// All methods of Server may be called from any goroutine. The package listens only on the
// listeners of Serve. Over a unix socket it trusts the same user and root, who may speak
// for any machine. Over TCP there is TLS 1.3 only: a connection with a machine's
// certificate speaks for that machine and no other, in each of its calls; one without may
// do nothing but join. A peer that is revoked, or whose certificate expires, loses its
// connection within a second or two.
package link
