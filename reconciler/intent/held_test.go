package intent

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// TestHeldIsAllThatGuardsHold: a comparison that does not ask the guards misses nothing that they
// would hold.
func TestHeldIsAllThatGuardsHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base, head := drawCommit(t, "base"), drawCommit(t, "head")
		var want []Hold
		if held := heldIn("c", base, head, nil); len(held) > 0 {
			want = held
		}
		var got []Hold
		for _, h := range Compare(base, head, nil).Held {
			got = append(got, h.Hold)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the guards and the comparison:\n%s", diff)
		}
	})
}

// drawCommit draws a commit of some jobs and alloc sets, in one of two directories.
func drawCommit(t *rapid.T, commit string) schema.Compiled {
	p := &schema.Package{Dir: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "directory"), Origins: map[schema.ObjectKey]schema.Position{}}
	for i := range 3 {
		name, tasks := fmt.Sprint("x", i), rapid.SampledFrom([]int{0, 1, 15}).Draw(t, "tasks")
		kind := schema.KindJob
		switch rapid.SampledFrom([]string{"none", "job", "job", "system", "alloc set"}).Draw(t, "what") {
		case "none":
			continue
		case "job":
			p.Objects.Jobs = append(p.Objects.Jobs, schema.Job{Name: name, User: "u", Cell: "c", Kind: schema.Service, Tasks: tasks, Update: schema.UpdatePolicy{MaxParallel: 1}})
		case "system":
			p.Objects.Jobs = append(p.Objects.Jobs, schema.Job{Name: name, User: "u", Cell: "c", Kind: schema.System, Update: schema.UpdatePolicy{MaxParallel: 1}})
		case "alloc set":
			kind = schema.KindAllocSet
			p.Objects.AllocSets = append(p.Objects.AllocSets, schema.AllocSet{Name: name, User: "u", Cell: "c", Allocs: tasks})
		}
		p.Origins[schema.ObjectKey{Kind: kind, Name: "c/u/" + name}] = schema.Position{Path: p.Dir + "/x.cue", Line: i + 1, Column: 1}
	}
	return schema.Compiled{Commit: commit, Packages: []schema.CompiledPackage{{Dir: p.Dir, Package: p, Digest: schema.DigestOf(p)}}}
}
