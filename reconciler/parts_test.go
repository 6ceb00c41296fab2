package reconciler_test

import (
	"slices"
	"strings"
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

// The history says of what follows the first part of a commit whether it is applied.
func TestWhatFollowsTheFirstPart(t *testing.T) {
	t.Parallel()
	root := good(pkg(".",
		schema.Cell{Name: "c", Quota: "off"},
		schema.Tenant{Name: "a", Users: []string{"a"}, Paths: []string{"teams/a"}},
		schema.Tenant{Name: "b", Users: []string{"b"}, Paths: []string{"teams/b"}},
	))
	for want, b := range map[string]schema.CompiledPackage{
		"what took long to compile is applied, too":                       good(pkg("teams/b", service("b", "web", 1, "v"))),
		"what took long to compile is done, too, 1 directory of it stale": bad("teams/b"),
	} {
		c, two := newCell(), compiled("1", root, bad("teams/a"), b)
		c.read(firstPart(two, map[string]bool{"teams/b": true}))
		events := c.commit(two)
		if !slices.ContainsFunc(events, func(e schema.Event) bool { return e.Kind == schema.EventApply && e.Message == want }) {
			t.Errorf("no event %q: %v", want, events)
		}
	}
}

// A commit that declares the first tenants is not applied in parts: before it, what is in one
// directory could belong to what is in any other.
func TestFirstTenantsInOne(t *testing.T) {
	t.Parallel()
	cells, tenants := schema.Cell{Name: "c", Quota: "off"}, []any{
		schema.Tenant{Name: "a", Users: []string{"a"}, Paths: []string{"teams/a"}},
		schema.Tenant{Name: "b", Users: []string{"b"}, Paths: []string{"teams/b"}},
	}
	moved, web := service("a", "moved", 1, "v"), service("b", "web", 1, "v")
	c := newCell()
	c.read(compiled("0", good(pkg(".", cells)), good(pkg("teams/a")), good(pkg("teams/b", moved, web))))
	c.step()
	next := compiled("1", good(pkg(".", append(tenants, cells)...)), good(pkg("teams/a", moved)), good(pkg("teams/b", web)))
	for _, e := range c.commit(firstPart(next, map[string]bool{"teams/b": true})) {
		t.Errorf("the first part: %s", e.Message)
	}
	if got := c.state.Head.Commit; got != "0" {
		t.Errorf("applied %s with a part of commit 1", got)
	}
	for _, e := range c.commit(next) {
		if e.Kind == schema.EventStale || strings.Contains(e.Message, "stale") {
			t.Errorf("the whole: %s", e.Message)
		}
	}
	if got := c.state.Head.Commit; got != "1" {
		t.Errorf("applied %s, want 1", got)
	}
}
