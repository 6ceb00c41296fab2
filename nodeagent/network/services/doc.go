// Package services decides what the kernel of a machine needs to know so that connections to
// services go to their endpoints: it turns services into the elements of maps, and a changed
// service into the difference. Package kernel below it programs them.
//
// Each port of a virtual address is a Front, and has a pool of slots, each with the address of a
// backend. The kernel picks a slot of a new connection by a random number, or, for sticky
// services, by a hash of the client's address. Weights are numbers of slots. So an endpoint
// that comes or goes changes a few elements, and no rule.
//
// A Planner has what is wanted, and what the kernel has. It does no I/O, and its owner
// may be one goroutine at a time.
package services
