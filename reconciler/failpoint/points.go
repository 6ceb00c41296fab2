package failpoint

// Point is a write of a master that is to outlive it.
type Point string

// The writes. Those to etcd are one transaction each, those to files what an
// interrupted one could leave behind.
const (
	// StoreIdentity writes the name of the cell into an empty store.
	StoreIdentity Point = "store-identity"
	// StoreElection takes the leader's key, with a lease in a cluster.
	StoreElection Point = "store-election"
	// StoreLease is the grant of that lease.
	StoreLease Point = "store-lease"
	// StorePiece is a piece of a document that is too large for one value.
	StorePiece Point = "store-piece"
	// StoreCommit writes a batch of documents: what was decided.
	StoreCommit Point = "store-commit"
	// StoreSweep removes pieces that no document names.
	StoreSweep Point = "store-sweep"
	// StoreResign gives the leader's key back.
	StoreResign Point = "store-resign"
	// DirectoryIdentity writes the name of the cell into a data directory.
	DirectoryIdentity Point = "directory-identity"
	// SnapshotWrite is a new file in the directory of snapshots.
	SnapshotWrite Point = "snapshot-write"
	// SnapshotRemove removes an old one.
	SnapshotRemove Point = "snapshot-remove"
	// EventSegment starts a file of the event log.
	EventSegment Point = "event-segment"
	// EventAppend writes events to it.
	EventAppend Point = "event-append"
	// EventIntent writes the events of decisions that are about to be stored.
	EventIntent Point = "event-intent"
	// GitFetch takes a commit into the copy of a repository that is not local.
	GitFetch Point = "git-fetch"
	// GitReplace replaces a damaged copy of a repository.
	GitReplace Point = "git-replace"
	// Certificate is the master's certificate, renewed.
	Certificate Point = "certificate"
)

// Points returns all writes, those of a start first.
func Points() []Point {
	return []Point{
		DirectoryIdentity, StoreIdentity, StoreLease, StoreElection, GitReplace, GitFetch,
		EventSegment, EventAppend, EventIntent, StorePiece, StoreCommit, StoreSweep,
		SnapshotWrite, SnapshotRemove, Certificate, StoreResign,
	}
}

// Before marks the place before the write begins.
func (p Point) Before() { pass(string(p) + "/before") }

// After marks the place after the write, once it is durable; where it has failed, too.
func (p Point) After() { pass(string(p) + "/after") }
