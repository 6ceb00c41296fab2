// Package link is the agent's side of the link to the master: it dials, and
// dials again for ever.
//
// In: what the Agent that it was given says of the machine and its tasks. Out:
// calls of that Agent: epochs, views, and logs that are asked for.
//
// Messages of a lower epoch than one seen before are refused, so that a master that was
// replaced cannot take the machine back. A client that is refused, because another agent
// has its machine's name, does not take it over: it informs its Agent, and asks again every
// few seconds. The master distinguishes processes with the same state directory by the life
// that each sends.
//
// Over a unix socket the kernel says who is there. Over TCP there is TLS 1.3:
// what the machine shows is its Identity's business; a join, and renewals over
// the session's own connection, are made here. A machine that has joined is
// never given up: with a certificate that is refused it asks on, and takes a new
// token when there is one.
//
// Hint may be called from any goroutine and never blocks. Run is called once; it calls the
// Agent from one goroutine, but for Logs, which has a goroutine for each log. Losing the
// link is no event for tasks: the package calls the Agent with nothing when a session ends.
package link
