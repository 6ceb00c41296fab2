package reconciler_test

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

// What the first part of a commit has left of its trailers passes on to one that comes from it. One
// that does not takes it back, and may remove what it has brought by leave of its own alone.
func TestRewoundBetweenTheParts(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]bool{"the next": false, "the one before": true} {
		root := good(pkg(".",
			schema.Cell{Name: "c", Quota: "off"},
			schema.Tenant{Name: "a", Users: []string{"a"}, Paths: []string{"teams/a"}},
			schema.Tenant{Name: "b", Users: []string{"b"}, Paths: []string{"teams/b"}},
		))
		kept, brought := service("a", "kept", 20, "v"), service("a", "brought", 20, "v")
		before := compiled("0", root, good(pkg("teams/a", kept)), good(pkg("teams/b", service("b", "web", 20, "v"))))
		two := compiled("1", root, good(pkg("teams/a", kept, brought)), good(pkg("teams/b")))
		two.Trailers = schema.Trailers{AllowPrune: 20, Promote: []string{"b/web"}, PromoteNew: []string{"b/web"}}

		c := newCell()
		c.read(before)
		c.step()
		c.read(firstPart(two, map[string]bool{"teams/b": true}))
		c.step()
		if rest := c.state.Head.Rest; rest.AllowPrune != 20 || len(rest.Promote) != 1 || len(rest.PromoteNew) != 1 || len(c.runs()["a"]) != 2 {
			t.Fatalf("%s: of the first part is left %+v, runs %v", name, rest, c.runs())
		}
		before.Commit, before.Trailers = "2", schema.Trailers{Alone: alone}
		c.read(before)
		c.step()
		if held := c.state.Head.Held != nil; held != alone {
			t.Errorf("%s: what was brought is held: %t", name, held)
		}
	}
}
