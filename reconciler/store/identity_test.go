package store

import (
	"context"
	"errors"
	"testing"

	"github.com/musterhq/muster/reconciler/model"
)

// begun is a backend in which somebody does something between the look for an identity
// and that for anything else.
type begun struct {
	backend
	meanwhile func()
}

func (b *begun) scan(ctx context.Context, prefix string, yield func(string, []byte) error) error {
	if prefix == root && b.meanwhile != nil {
		b.meanwhile()
		b.meanwhile = nil
	}
	return b.backend.scan(ctx, prefix, yield)
}

// TestTwoBegin: of two masters that begin a cell at the same moment both are of it. What
// is in the store without an identity belongs to nobody, whatever its cell.
func TestTwoBegin(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{true, false} {
		m := NewMemory()
		late, err := newStore(&begun{(*memoryBackend)(m), func() {
			first, err := newStore((*memoryBackend)(m), identity{Cell: "c", ID: "first", Format: layout}, "")
			if err == nil {
				first.claimed = !whole
				err = first.Campaign(t.Context(), "first")
			}
			if err == nil {
				err = first.Commit(t.Context(), []model.Write{{Key: "a", Value: []byte("b")}})
			}
			if err != nil {
				t.Error(err)
			}
		}}, identity{Cell: "c", ID: "late", Format: layout}, "")
		if err != nil {
			t.Fatal(err)
		}
		err = late.Campaign(t.Context(), "late")
		if foreign := (*ForeignError)(nil); whole && err != nil || !whole && !errors.As(err, &foreign) {
			t.Errorf("whole %t: %v", whole, err)
		}
	}
}
