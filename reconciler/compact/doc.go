// Package compact finds how few of its machines a cell needs if all its work is packed anew:
// what rebalancing could win at the most, by the method of Borg's evaluation.
//
// In: the state of a cell, and what its machines have said last. Out: how many machines it
// takes. It writes nothing, and the state belongs to the caller.
package compact
