// Package store keeps a cell's documents at rest. It knows nothing of what is
// in them: a document is bytes under a key relative to the cell.
//
// In: batches of model.Write, each one transaction. Out: all documents,
// on Load. There is one type, Store, over three backends that pass the same
// tests: an etcd server inside this process (OpenEmbedded), a cluster of them
// outside (OpenCluster), and a twin in memory for tests and the simulation
// (Memory.Open). Snapshot writes all documents into a file, Restore makes a data
// directory of one, and Maintain looks after both and the disk.
//
// # One writer
//
// Campaign writes the leader key; the revision at which it was written is the
// fence, and every later transaction compares it. So a master that was
// replaced cannot write, whatever it believes: a lock, a lease or an election
// without that comparison is not mutual exclusion (jepsen.io/analyses/etcd-3.4.3).
// When the outcome of a transaction is not known (a timeout, a server that
// went away), it may still take effect later. The Store then gives up
// leadership: a new Campaign moves the fence, so the lost transaction has
// either happened before it or never will, and the Load that follows sees the
// truth. Hence the rule for callers: Campaign, Load, Commit…; after any error
// of Commit or once Lost is closed, Campaign and Load again.
//
// # Layout
//
//	/muster/<cell>/<key>                   the documents
//	/muster/<cell>/cell                    identity, written by the store
//	/muster-store/<cell>/leader            id of the leader
//	/muster-store/<cell>/piece/<sha256>    pieces of documents over 1 MiB
//
// A stored value begins with an envelope: its format, one byte ('2'); its form,
// one byte ('d', the document follows; 'p', a JSON list of pieces follows); and
// the release that wrote it, up to a newline. Values of format '1', which name no
// release, are read too. A format that this release does not know is a
// *NewerError that names the release which wrote it, never a guess; what is new
// within a format is new fields, which schema.Decode keeps (docs/decisions/0018).
// The version is outside the document, so that a document's digest is that of
// its content. Pieces are written before the document that names them and removed
// after the last one that did.
//
// A data directory holds `lock` (held with flock while the store is open, with
// the holder's pid), `cell.json` (the identity again, so that a directory of
// another cell is refused before anything in it is touched) and `etcd/`.
//
// A Store may be called from several goroutines; transactions are sent one at
// a time. It never retries, and never reads what it was not asked to.
package store
