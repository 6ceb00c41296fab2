// Package pack measures how well placement packs: it replays a trace of
// machines and tasks through placement.Place and says how much of the cell was
// needed, or how much of it was used.
//
// In: a trace in the columns of Alibaba's openb (see Nodes and Tasks), a policy
// and a measure. Out: a Result for people and for JSON. It reads from the
// readers it is given and does no other I/O; one Run is one goroutine's.
package pack
