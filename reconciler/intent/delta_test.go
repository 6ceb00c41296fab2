package intent

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// TestBaseFollows: what is found out of the packages that differ is what all packages declare,
// whatever refers to what.
func TestBaseFollows(t *testing.T) {
	t.Parallel()
	digest := func(_ *schema.Package, _ int, j *schema.Job) schema.Digest { return schema.DigestOf(j) }
	rapid.Check(t, func(t *rapid.T) {
		packages := map[string]*schema.Package{}
		var kept *base
		for range rapid.IntRange(2, 6).Draw(t, "commits") {
			next := map[string]*schema.Package{}
			for n := range 4 {
				dir := fmt.Sprint("d", n)
				switch was := packages[dir]; rapid.SampledFrom([]string{"same", "same", "other", "none"}).Draw(t, "package") {
				case "same":
					if was != nil {
						next[dir] = was
					}
				case "other":
					next[dir] = drawPackage(t, dir)
				}
			}
			packages, kept = next, kept.next("c", next, digest)
			want := newBase("c", next, digest)
			if diff := cmp.Diff(want.declared, kept.declared, cmpopts.IgnoreUnexported(DesiredMachine{}), cmp.AllowUnexported(Desired{}), cmpopts.IgnoreFields(Desired{}, "base"), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("by what differs (-) and (+) from nothing:\n%s", diff)
			}
		}
	})
}

// drawPackage draws a package of jobs, an alloc set and a priority, of which some refer to those of
// any package.
func drawPackage(t *rapid.T, dir string) *schema.Package {
	p := &schema.Package{Dir: dir, Origins: map[schema.ObjectKey]schema.Position{}}
	at := schema.Position{Path: dir + "/x.cue", Line: 1, Column: 1}
	key := func(kind schema.Kind, name string) schema.ObjectKey {
		k := schema.ObjectKey{Kind: kind, Name: "c/u/" + name}
		if kind == schema.KindPriority {
			k.Name = name
		}
		return k
	}
	for i := range 2 {
		name := fmt.Sprint("j", rapid.IntRange(0, 9).Draw(t, "job"))
		if _, twice := p.Origins[key(schema.KindJob, name)]; twice {
			continue
		}
		job := schema.Job{Name: name, User: "u", Cell: rapid.SampledFrom([]string{"c", "c", "other"}).Draw(t, "cell"), Kind: schema.Service, Tasks: rapid.IntRange(0, 3).Draw(t, "tasks")}
		p.Origins[key(schema.KindJob, name)] = at
		to := schema.ObjectKey{}
		switch rapid.SampledFrom([]string{"", "", "", "set", "priority"}).Draw(t, "refers") {
		case "set":
			job.AllocSet, to = "s", key(schema.KindAllocSet, "s")
		case "priority":
			to = key(schema.KindPriority, "p")
		}
		if to.Name != "" {
			p.References = append(p.References, schema.Reference{From: key(schema.KindJob, name), To: to, At: at, Field: fmt.Sprint("f", i)})
		}
		p.Objects.Jobs = append(p.Objects.Jobs, job)
	}
	switch rapid.SampledFrom([]string{"", "", "", "set", "priority", "machine"}).Draw(t, "beside") {
	case "set":
		p.Objects.AllocSets = []schema.AllocSet{{Name: "s", User: "u", Cell: "c", Allocs: rapid.IntRange(1, 3).Draw(t, "allocs"), Priority: 100}}
		p.Origins[key(schema.KindAllocSet, "s")] = at
	case "priority":
		p.Objects.Priorities = []schema.NamedPriority{{Name: "p", Value: schema.Priority(rapid.IntRange(0, 200).Draw(t, "value"))}}
		p.Origins[key(schema.KindPriority, "p")] = at
	case "machine":
		p.Objects.Machines = []schema.Machine{{Name: "m", Cell: "c", Cordon: rapid.Bool().Draw(t, "cordon")}}
	}
	return p
}
