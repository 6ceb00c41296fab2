package schema

// SourceQuestion asks from where a machine gets an image or a package that it is to bring.
type SourceQuestion struct {
	Machine string
	Content Digest // by which it was asked for
	// Without are machines that do not give it: gone, too slow, without some of it, or with
	// something else.
	Without []string
	// Stalled says that nothing has come for long, although others were to give it.
	Stalled bool
	// Ended says that the machine has given up, for now: there is no answer to wait for.
	Ended bool
}

// SourceAnswer says where.
type SourceAnswer struct {
	// Registry says that the registry, or the server that a package comes from, may be asked.
	Registry bool
	Peers    []SourcePeer // in the order in which they are asked
}

// SourcePeer is a machine that has it, or is getting it.
type SourcePeer struct {
	Machine string
	Address string // HOST:PORT
	Holds   bool   // it has said that it has all of it
}

// MaxWithout is how many machines a SourceQuestion names at most.
const MaxWithout = 64
