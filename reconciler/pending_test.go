package reconciler_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// TestPending: what is still being compiled has a list of its own, keeps the cell from being
// converged until it is applied, and is no mistake that a person has to correct.
func TestPending(t *testing.T) {
	t.Parallel()
	root := good(pkg(".", schema.Cell{Name: "c", Quota: "off"},
		schema.Tenant{Name: "a", Users: []string{"a"}, Paths: []string{"teams/a"}},
		schema.Tenant{Name: "b", Users: []string{"b"}, Paths: []string{"teams/b"}}))
	a, b := good(pkg("teams/a", service("a", "web", 1, "v"))), good(pkg("teams/b", service("b", "web", 1, "v")))
	c := newCell()
	c.commit(compiled("0", root, a, b))

	next := compiled("1", root, bad("teams/a"), good(pkg("teams/b", service("b", "web", 2, "v"))))
	c.commit(firstPart(next, map[string]bool{"teams/b": true}))
	s := c.status()
	if diff := cmp.Diff([]status.PendingPackage{{Dir: "teams/b", Reason: "teams/b/x.cue:1:1: it takes long"}}, s.Pending); diff != "" {
		t.Errorf("pending: -want +got\n%s", diff)
	}
	if len(s.Stale) != 1 || s.Stale[0].Dir != "teams/a" || len(s.Blocked) != 1 || s.Converged {
		t.Errorf("stale %v, blocked %v, converged %t: want teams/a alone", s.Stale, s.Blocked, s.Converged)
	}
	if s.AllBlocked() {
		t.Error("waits for nothing but a person, though teams/b follows by itself")
	}

	c.commit(next)
	if s := c.status(); len(s.Pending) != 0 || len(s.Stale) != 1 {
		t.Errorf("pending %v, stale %v after all is compiled", s.Pending, s.Stale)
	}
}
