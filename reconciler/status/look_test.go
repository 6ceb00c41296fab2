package status

import (
	"testing"

	"github.com/musterhq/muster/reconciler/model"
)

// TestLookPending: what is still being compiled is not said to be stale.
func TestLookPending(t *testing.T) {
	t.Parallel()
	after := &Status{Commit: "b", Applied: "b", Behind: Behind{Stale: []StalePackage{{Dir: "a"}}, Pending: []PendingPackage{{Dir: "b"}, {Dir: "c"}}}}
	const want = "found b (was a), 1 directory of it is stale, 2 directories to follow when all is compiled"
	if got := LookOf(&Status{Commit: "a"}, after, model.Seen{Commit: "b"}); got.String() != want || got.Stale != 1 || got.Pending != 2 {
		t.Errorf("%+v: %s, want %s", *got, got, want)
	}
}
