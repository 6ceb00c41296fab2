// Package dns answers the DNS queries of a machine's tasks: names of the cell from what the machine
// knows itself, and all others by asking other servers.
//
//	INDEX.JOB.USER.CELL.DOMAIN     one task, ready or not
//	JOB.USER.CELL.DOMAIN           the tasks of a job that are ready
//	SERVICE.USER.svc.CELL.DOMAIN   the virtual address of a service, or its tasks if it has none
//	_PORT._tcp.  _PORT._udp.       before each of these: SRV, with the names of ports
//
// Zone is a pure function from a naming.Snapshot, a question and a seed to an answer; Reply makes a
// message of it. A Server has the sockets: UDP and TCP at given addresses. It answers the machine
// itself and ranges that are given to it, and nobody else. What is outside of the cell goes to upstream
// servers, one after the other, and answers are kept as long as they say.
//
// A Server's methods may be called from any goroutine. It bounds what it does at once, for each client as for
// all together. It never waits for a master, and never asks one.
package dns
