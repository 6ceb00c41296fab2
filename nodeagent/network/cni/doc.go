// Package cni gives tasks networks that plugins of CNI make: a namespace each, with an interface that the
// plugins put into it, and the addresses that they choose of the machine's subnets.
//
// In: the cell's list of plugins, which tasks are to have a network, and the machine's subnets. Out: the path of a
// namespace with addresses in it, which the task's keeper enters.
//
// What plugins keep is in files of theirs, and outlasts the kernel. So each network has a record on disk, which is there
// before the first plugin is called and removed after they have taken the network back: whoever is killed, and after
// a restart of the machine, they get DEL at least once. Each call has a lock that the programs inherit,
// so DEL waits for what an agent before this one has left running.
//
// A task must not go around its machine, which enforces policies and sends connections to virtual addresses on. So the
// interface must be one end of a veth pair, and in the namespace neighbours are reached by the gateway, as all else; packets from
// addresses that are not the task's own, and those that only neighbours see, are dropped there.
//
// The methods of Networks may be called from any goroutine.
package cni
