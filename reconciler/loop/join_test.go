package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/reconciler/store"
)

// TestJoinOfEndedSession: a machine whose session has ended before its turn costs no transaction,
// and the one that joins after it does not wait for that.
func TestJoinOfEndedSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		lost := errors.New("the connection was lost")
		session, end := context.WithCancelCause(t.Context())
		end(lost)
		before := r.memory.Transactions()
		if _, err := r.Join(session, machine()); !errors.Is(err, lost) {
			t.Errorf("a machine whose session has ended joins with %v", err)
		}
		if took := r.memory.Transactions() - before; took > 0 || len(r.stored().Machines) > 0 {
			t.Errorf("it took %d transactions, and %d machines are stored", took, len(r.stored().Machines))
		}
		if epoch, err := r.Join(t.Context(), machine()); err != nil || epoch != 1 {
			t.Errorf("the next session has epoch %d, %v", epoch, err)
		}
		r.stop()
	})
}
