package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/reconciler/model"
)

// ErrNotLeader says that this Store does not lead the cell (any more): nothing
// of the refused write was stored.
var ErrNotLeader = errors.New("not the leader of the cell")

// Limits of one Commit. model.Batches keeps within them.
const (
	maxOps   = 128       // etcd's max-txn-ops
	maxBytes = 1 << 20   // keys and values that are not split
	maxValue = 256 << 20 // a document; beyond this something else is wrong
	maxKey   = 1 << 10
)

// Store is a handle on the documents of one cell.
type Store struct {
	cell    string
	release string // of this program, for what it writes
	be      backend

	mu      sync.Mutex // held during transactions; guards the next six
	id      identity
	claimed bool      // id was held against the store's
	fence   condition // valid while leading
	closed  bool
	pieces  ledger
	written uint64 // counts commits, and terms

	snapshotted uint64 // written at the last Snapshot, of which there is one at a time

	lostMu sync.Mutex // guards lost; taken after mu, never held for long
	lost   chan struct{}
}

// backend is a transactional map of ordered keys with a revision that grows by
// one with each transaction that writes.
type backend interface {
	// txn applies ops at once if the condition holds (a zero condition
	// always does), and returns the revision of the store after it. With an
	// error the outcome is unknown.
	txn(ctx context.Context, c condition, ops []op) (rev int64, held bool, err error)
	// scan yields the keys that begin with prefix in order, all as of one
	// revision.
	scan(ctx context.Context, prefix string, yield func(key string, value []byte) error) error
	// campaign puts value at key, once it may, for a term that ends at the
	// latest when lost is closed, and returns the revision of that.
	campaign(ctx context.Context, key string, value []byte) (rev int64, lost <-chan struct{}, err error)
	close() error
}

// condition holds while key was last written at revision rev; rev 0 means that
// there is no such key. The modification revision and not the creation's: a
// second Campaign overwrites the key and must fence the first.
type condition struct {
	key string
	rev int64
}

// op puts value at key, or deletes key when value is nil.
type op struct {
	key   string
	value []byte
}

const root = "/muster/"

func (s *Store) docPrefix() string   { return root + s.cell + "/" }
func (s *Store) leaderKey() string   { return "/muster-store/" + s.cell + "/leader" }
func (s *Store) piecePrefix() string { return "/muster-store/" + s.cell + "/piece/" }

// open makes the handle and claims or checks the identity.
func open(ctx context.Context, be backend, id identity, release string) (*Store, error) {
	s, err := newStore(be, id, release)
	if err != nil {
		return nil, err
	}
	return s, s.identify(ctx)
}

// newStore makes the handle; Campaign claims the identity.
func newStore(be backend, id identity, release string) (*Store, error) {
	if id.Cell == "" || strings.Contains(id.Cell, "/") {
		return nil, fmt.Errorf("cell %q: want a name without /", id.Cell)
	}
	if len(release) > maxRelease || strings.ContainsRune(release, '\n') {
		return nil, fmt.Errorf("release %q: want one line of at most %d bytes", release, maxRelease)
	}
	s := &Store{cell: id.Cell, id: id, release: release, be: be, lost: make(chan struct{})}
	close(s.lost)
	return s, nil
}

// Campaign makes this Store the leader under the given id and fences every
// other. In an embedded store it does not wait: whoever holds the data directory
// is the only process that can lead. In a cluster it waits for as long as another
// leads, and ends when ctx does.
func (s *Store) Campaign(ctx context.Context, id string) error {
	if err := s.stand(ctx); err != nil {
		return fmt.Errorf("campaign as %q: %w", id, err)
	}
	// Not under the lock: it may take days.
	rev, lost, err := s.be.campaign(ctx, s.leaderKey(), s.encode(formData, []byte(id)))
	if err != nil {
		return fmt.Errorf("campaign as %q: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("campaign: %w", errClosed)
	}
	s.fence = condition{s.leaderKey(), rev}
	s.pieces = ledger{}
	s.written++ // by others, meanwhile
	s.lead(lost)
	return nil
}

// stand gives up leadership and makes sure that the store is this cell's.
func (s *Store) stand(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.drop()
	if s.claimed {
		return nil
	}
	return s.identify(ctx)
}

// Lost returns a channel that is closed once this Store knows that it does not
// lead: before Campaign, after a Commit that failed, after Resign and Close,
// and when the backend is gone.
func (s *Store) Lost() <-chan struct{} {
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	return s.lost
}

// Term returns a number that grows with each election of the cell; that of this Store
// while it leads.
func (s *Store) Term() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(s.fence.rev) //nolint:gosec // a number from 0
}

// Resign gives up leadership if it is held. Nothing can be written until the
// next Campaign.
func (s *Store) Resign(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leading() {
		return nil
	}
	s.drop()
	failpoint.StoreResign.Before()
	_, _, err := s.be.txn(ctx, s.fence, []op{{key: s.leaderKey()}})
	failpoint.StoreResign.After()
	if err != nil {
		return fmt.Errorf("resign: %w", err)
	}
	return nil
}

// Load returns all documents of the cell by key, as of one moment. It needs no
// leadership; a leader loads after Campaign, since only then can nobody else
// change what it read.
func (s *Store) Load(ctx context.Context) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("load cell %q: %w", s.cell, errClosed)
	}
	docs, led, err := s.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load cell %q: %w", s.cell, err)
	}
	if s.leading() {
		s.pieces = led
	}
	return docs, nil
}

// Documents returns the documents whose keys begin with prefix, as of one
// moment. They are few and small: one that is kept in pieces is an error.
func (s *Store) Documents(ctx context.Context, prefix string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("documents %s of cell %q: %w", prefix, s.cell, errClosed)
	}
	docs := map[string][]byte{}
	err := s.be.scan(ctx, s.docPrefix()+prefix, func(key string, value []byte) error {
		key = strings.TrimPrefix(key, s.docPrefix())
		form, doc, err := decode(fmt.Sprintf("document %q", key), value)
		if err == nil && form != formData {
			err = fmt.Errorf("document %q: it is in pieces", key)
		}
		if err != nil {
			return err
		}
		docs[key] = doc
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("documents %s of cell %q: %w", prefix, s.cell, err)
	}
	return docs, nil
}

// Commit stores writes in one transaction: all or nothing. Of several writes
// of a key the last counts. It fails with ErrNotLeader when this Store has
// been fenced; after any other error of the backend the outcome is unknown and
// leadership is given up. What is over the limits of a transaction is refused
// and changes nothing, leadership included.
func (s *Store) Commit(ctx context.Context, writes []model.Write) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes, err := s.check(writes)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if !s.leading() {
		return fmt.Errorf("commit: %w", ErrNotLeader)
	}
	if len(writes) == 0 {
		return nil
	}
	ops := make([]op, len(writes))
	parts := map[string][]piece{}
	for i, w := range writes {
		ops[i].key = s.docPrefix() + w.Key
		switch {
		case w.Value == nil:
		case fits(w):
			ops[i].value = s.encode(formData, w.Value)
		default:
			if parts[w.Key], err = s.writePieces(ctx, w.Value); err != nil {
				return fmt.Errorf("commit: pieces of %q: %w", w.Key, err)
			}
			ops[i].value = s.encodePieces(parts[w.Key])
		}
	}
	if err := s.fenced(ctx, failpoint.StoreCommit, ops); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.written++
	for _, w := range writes {
		s.pieces.set(w.Key, parts[w.Key])
	}
	s.sweep(ctx)
	return nil
}

// Close gives up leadership without a write and releases the backend. Closing
// twice is allowed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.drop()
	if err := s.be.close(); err != nil {
		return fmt.Errorf("close the store of cell %q: %w", s.cell, err)
	}
	return nil
}

var errClosed = errors.New("the store is closed")

// fenced applies ops if this Store still leads; otherwise, or if that is
// unknown, it does not lead from now on.
func (s *Store) fenced(ctx context.Context, what failpoint.Point, ops []op) error {
	what.Before()
	_, held, err := s.be.txn(ctx, s.fence, ops)
	what.After()
	if err == nil && !held {
		err = ErrNotLeader
	}
	if err != nil {
		s.drop()
	}
	return err
}

// lead opens a new term, which ends at the latest when down is closed.
func (s *Store) lead(down <-chan struct{}) {
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	lost := make(chan struct{})
	s.lost = lost
	if down == nil {
		return
	}
	go func() {
		select {
		case <-lost:
		case <-down:
			s.lostMu.Lock()
			defer s.lostMu.Unlock()
			end(lost)
		}
	}()
}

// drop ends the term, if there is one.
func (s *Store) drop() {
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	end(s.lost)
}

func (s *Store) leading() bool {
	select {
	case <-s.Lost():
		return false
	default:
		return true
	}
}

// end closes a channel that may be closed already; lostMu is held.
func end(lost chan struct{}) {
	select {
	case <-lost:
	default:
		close(lost)
	}
}

// check coalesces writes and holds them against the limits.
func (s *Store) check(writes []model.Write) ([]model.Write, error) {
	out := make([]model.Write, 0, len(writes))
	at := make(map[string]int, len(writes))
	for _, w := range writes {
		if err := s.checkWrite(w); err != nil {
			return nil, err
		}
		if i, again := at[w.Key]; again {
			out[i] = w
			continue
		}
		at[w.Key] = len(out)
		out = append(out, w)
	}
	if len(out) > maxOps {
		return nil, fmt.Errorf("%d operations in one transaction: at most %d", len(out), maxOps)
	}
	sum := 0
	for _, w := range out {
		if fits(w) {
			sum += len(w.Key) + len(w.Value)
		}
	}
	if sum > maxBytes {
		return nil, fmt.Errorf("%d bytes in one transaction: at most %d", sum, maxBytes)
	}
	return out, nil
}

func (s *Store) checkWrite(w model.Write) error {
	switch {
	case w.Key == "" || len(w.Key) > maxKey || strings.HasPrefix(w.Key, "/"):
		return fmt.Errorf("key %q: want 1 to %d bytes and no / in front", w.Key, maxKey)
	case w.Key == identityKey:
		return fmt.Errorf("key %q: the identity of a cell does not change", w.Key)
	case len(w.Value) > maxValue:
		return fmt.Errorf("document %q: %d bytes: at most %d", w.Key, len(w.Value), maxValue)
	}
	return nil
}

// fits says whether w is stored as it is and not in pieces.
func fits(w model.Write) bool { return len(w.Key)+len(w.Value) <= maxBytes }
