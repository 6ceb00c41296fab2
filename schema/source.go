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
	// Pull is which attempt of the machine it is, at random. 0 is of an agent that does not say
	// what follows.
	Pull uint64
	// Turn grows with each question of a pull: what is older than another one is not looked at.
	Turn uint64
	// Fetches are the blobs that the machine gets from where the content is, or would: all of them, in each question.
	Fetches []SourceFetch
	// Have are blobs that it has got whole, wherever from, and gives others: those that no answered question has named.
	Have []Digest
	// Received is how many bytes other machines have given it so far.
	Received int64
	// Whole says that it has all of it, and gives that to others: there is no answer to wait for.
	Whole bool
}

// SourceFetch is the fetch of a blob from a registry, or from the server that a package comes from.
type SourceFetch struct {
	Blob  Digest
	Begun bool  // else the machine waits until it may
	Bytes int64 // that have come
}

// SourceAnswer says where.
type SourceAnswer struct {
	// Registry says that the registry, or the server that a package comes from, may be asked, whatever for. It is
	// for agents that do not say which blobs.
	Registry bool
	Peers    []SourcePeer // in the order in which they are asked
	// ByBlob says that Fetch is to be followed, and not Registry.
	ByBlob bool
	// Fetch are those of the question's blobs that may be fetched now, beside those that are.
	Fetch []Digest
}

// SourcePeer is a machine that has it, or is getting it.
type SourcePeer struct {
	Machine string
	Address string // HOST:PORT
	Holds   bool   // it has said that it has all of it
}

// MaxWithout is how many machines a SourceQuestion names at most, and MaxFetches how many blobs it wants, or has.
const (
	MaxWithout = 64
	MaxFetches = 256
)
