// Package relay has all packets of a network namespace go to another one, and back: that of a
// task with a kernel of its own, which takes what its interface is sent from below the machine's
// kernel, and needs a namespace for that in which it has all rights.
//
// In: the two namespaces. Out: a pair of interfaces between them, and a table of nftables. The task's end has the name,
// hardware address, addresses, routes and neighbors of the interface that it stands for, which keeps them: so
// nobody outside sees a difference, and whoever joins the first namespace after the end finds it as it was.
//
// The interface that is stood for may be made anew, and have another MTU: the relay follows it.
//
// Nothing stays: the table is its socket's, which ends with the process, and the pair ends with the second namespace.
//
// It is a part of the keeper, of which there are many: it links the standard library and
// golang.org/x/sys alone. Its calls are for one goroutine that is locked to its thread; an open
// relay has another one.
package relay
