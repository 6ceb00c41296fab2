package intent

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestUnchangedPackageIsChecked: a package that a commit leaves as it is becomes stale once it may not
// declare any more what it does, and one that changes when it declares what another holds.
func TestUnchangedPackageIsChecked(t *testing.T) {
	t.Parallel()
	pack := func(dir string, objects schema.Objects, keys ...schema.ObjectKey) schema.CompiledPackage {
		p := &schema.Package{Dir: dir, Objects: objects, Origins: map[schema.ObjectKey]schema.Position{}}
		for i, key := range keys {
			p.Origins[key] = schema.Position{Path: dir + "/x.cue", Line: i + 1, Column: 1}
		}
		return schema.CompiledPackage{Dir: dir, Package: p, Digest: schema.DigestOf(p)}
	}
	tenant := func(dir, name, user string, paths ...string) schema.CompiledPackage {
		return pack(dir, schema.Objects{Tenants: []schema.Tenant{{Name: name, Paths: paths, Users: []string{user}}}}, schema.ObjectKey{Kind: schema.KindTenant, Name: name})
	}
	job := func(dir, user string, tasks int) schema.CompiledPackage {
		j := schema.Job{Name: "x", User: user, Cell: "c", Kind: schema.Service, Tasks: tasks, Update: schema.UpdatePolicy{MaxParallel: 1}}
		return pack(dir, schema.Objects{Jobs: []schema.Job{j}}, schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()})
	}
	for _, tt := range []struct {
		name string
		next []schema.CompiledPackage
		want []string // stale
	}{
		{"the same", []schema.CompiledPackage{tenant("cells/t", "t", "u", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("w", "w", 1)}, nil},
		{"another job", []schema.CompiledPackage{tenant("cells/t", "t", "u", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 2), job("w", "w", 1)}, nil},
		{"a job that another holds", []schema.CompiledPackage{tenant("cells/t", "t", "u", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("b", "u", 1), job("w", "w", 1)}, []string{"b"}},
		{"another user of the tenant", []schema.CompiledPackage{tenant("cells/t", "t", "v", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("w", "w", 1)}, []string{"a"}},
		{"the tenant is gone", []schema.CompiledPackage{tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("w", "w", 1)}, []string{"a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, now := model.NewState("c"), time.Unix(0, 0)
			for n, packages := range [][]schema.CompiledPackage{{tenant("cells/t", "t", "u", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("w", "w", 1)}, tt.next} {
				c := schema.Compiled{Commit: string(rune('1' + n)), Packages: packages}
				if err := s.Apply(Adopt(s, Of(s), c, now).Writes); err != nil {
					t.Fatal(err)
				}
				want := tt.want
				if n == 0 {
					want = nil
				}
				if got := slices.Sorted(maps.Keys(s.Head.Stale)); !slices.Equal(got, want) {
					t.Errorf("commit %d: %v are stale, want %v", n+1, got, want)
				}
			}
		})
	}
}
