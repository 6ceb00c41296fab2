package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/schema"
)

// identityKey is the document that says whose store this is.
const identityKey = "cell"

// layout is the number of the key layout and file layout that this release
// writes and understands.
const layout = 1

// identity names a cell beyond its name: a cell that was deleted and made
// again under the same name has another ID.
type identity struct {
	Cell   string `json:"cell"`
	ID     string `json:"id"`
	Format int    `json:"format"`
}

// ForeignError refuses a store that belongs to another cell.
type ForeignError struct {
	Where string // "data directory /var/lib/muster"
	Owner string
	Cell  string // the one that was asked for
}

// Error says whose the store is, and on a second line what to do.
func (e *ForeignError) Error() string { return e.Hinted().Error() }

// Hinted takes the two apart.
func (e *ForeignError) Hinted() *schema.HintedError {
	return schema.Hintf(fmt.Sprintf("name another directory for cell %q, or start cell %q here", e.Cell, e.Owner),
		"%s belongs to cell %q, not %q", e.Where, e.Owner, e.Cell)
}

// parseIdentity reads data and holds it against the cell that was asked for.
func parseIdentity(data []byte, where, cell string) (identity, error) {
	var id identity
	if err := json.Unmarshal(data, &id); err != nil {
		return identity{}, fmt.Errorf("%s: the identity of its cell cannot be read: %w", where, err)
	}
	if id.Format > layout {
		return identity{}, schema.Hintf("start the newer release", "%s was written by a newer release (layout %d, this one knows %d)",
			where, id.Format, layout)
	}
	if id.Cell != cell {
		return identity{}, &ForeignError{Where: where, Owner: id.Cell, Cell: cell}
	}
	return id, nil
}

// identify checks the identity, or writes it into an empty store.
func (s *Store) identify(ctx context.Context) (err error) {
	defer func() { s.claimed = err == nil }()
	id, key := s.id, s.docPrefix()+identityKey
	found, err := s.identified(ctx)
	if err != nil || found {
		return err
	}
	var foreign *ForeignError
	err = s.be.scan(ctx, root, func(key string, _ []byte) error {
		owner, _, _ := strings.Cut(strings.TrimPrefix(key, root), "/")
		return &ForeignError{Where: theStore, Owner: owner, Cell: id.Cell}
	})
	if errors.As(err, &foreign) && foreign.Owner == id.Cell {
		// Another master of the cell has begun it since.
		if found, again := s.identified(ctx); again != nil || found {
			return again
		}
	}
	if err != nil {
		return err
	}
	doc, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("identity of cell %q: %w", id.Cell, err)
	}
	failpoint.StoreIdentity.Before()
	_, _, err = s.be.txn(ctx, condition{key: key}, []op{{key, s.encode(formData, doc)}})
	failpoint.StoreIdentity.After()
	if err != nil {
		return fmt.Errorf("write the identity of cell %q: %w", id.Cell, err)
	}
	return nil
}

const theStore = "the store"

// identified reports whether the store has an identity, and errs if that is another's.
func (s *Store) identified(ctx context.Context) (found bool, err error) {
	key := s.docPrefix() + identityKey
	err = s.be.scan(ctx, key, func(k string, value []byte) error {
		if k != key {
			return nil // another document that begins like it
		}
		found = true
		_, doc, err := decode(fmt.Sprintf("document %q", identityKey), value)
		if err != nil {
			return err
		}
		_, err = parseIdentity(doc, theStore, s.id.Cell)
		return err
	})
	return found, err
}
