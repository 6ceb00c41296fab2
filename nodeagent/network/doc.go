// Package network gives tasks networks of their own: a namespace each, with an address of the
// machine's subnet, and routes to the tasks of other machines.
//
// In: what the cell says of its network, which tasks are to have one, and where other machines
// are. Out: the path of a namespace with addresses in it, which the task's keeper enters.
//
// A task's interface is one end of a pair; the other is on the machine, which routes to it.
// So all packets of a task, also to a neighbour, are routed, and pass the machine's firewall.
// The machine's own address in the subnet, the first, is on a bridge without ports.
//
// Everything is in the kernel, and nothing on disk: what a name, an alias or a metric says is
// this agent's is found again by the next one. A task's network is complete once its link
// has an alias, which is set last; a link without one is removed. So an agent can be killed at
// any point.
//
// Planning (plan.go) is pure. The methods of a Manager may be called from any goroutine.
package network
