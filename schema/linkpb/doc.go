// Package linkpb is the protobuf of the link between a master and its node
// agents, and the conversion between it and package schema.
//
// link.proto says what travels and in which order. In and out: values of
// schema on one side, messages on the other; what is received is checked, so
// that a decoded value has valid names. The data of a job travels as canonical
// JSON under its digest, and is refused when the two do not match.
//
// All functions are pure and safe for concurrent use. The package never opens
// a connection: that is reconciler/link and nodeagent/link.
package linkpb

//go:generate go run ./internal/gen

// MaxMessage is the largest message that either end sends or takes, in bytes:
// a report of some 30,000 tasks.
const MaxMessage = 16 << 20
