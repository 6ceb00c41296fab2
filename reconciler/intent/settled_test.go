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
	both := func(a, b schema.CompiledPackage) schema.CompiledPackage {
		o := a.Package.Objects
		o.Jobs = b.Package.Objects.Jobs
		return pack(a.Dir, o, slices.Concat(slices.Collect(maps.Keys(a.Package.Origins)), slices.Collect(maps.Keys(b.Package.Origins)))...)
	}
	other := tenant("cells/w", "w", "w", "w", "cells/t")
	first := []schema.CompiledPackage{tenant("cells/t", "t", "u", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("w", "w", 1)}
	for _, tt := range []struct {
		name  string
		first []schema.CompiledPackage // nil for the usual one
		next  []schema.CompiledPackage
		want  []string // stale
	}{
		{"the same", nil, []schema.CompiledPackage{tenant("cells/t", "t", "u", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("w", "w", 1)}, nil},
		{"another job", nil, []schema.CompiledPackage{tenant("cells/t", "t", "u", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 2), job("w", "w", 1)}, nil},
		{"a job that another holds", nil, []schema.CompiledPackage{tenant("cells/t", "t", "u", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("b", "u", 1), job("w", "w", 1)}, []string{"b"}},
		{"another user of the tenant", nil, []schema.CompiledPackage{tenant("cells/t", "t", "v", "a", "b"), tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("w", "w", 1)}, []string{"a"}},
		{"the tenant is gone", nil, []schema.CompiledPackage{tenant("cells/w", "w", "w", "w"), job("a", "u", 1), job("w", "w", 1)}, []string{"a"}},
		{"the first tenant", []schema.CompiledPackage{job("a", "u", 1)}, []schema.CompiledPackage{job("a", "u", 1), tenant("cells/w", "w", "w", "w")}, []string{"a"}},
		{
			"a package that declared the tenant, and goes on with a job",
			[]schema.CompiledPackage{both(tenant("cells/t", "t", "u", "a"), job("cells/t", "w", 1)), other, job("a", "u", 1)},
			[]schema.CompiledPackage{job("cells/t", "w", 1), other, job("a", "u", 1)},
			[]string{"a"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, now := model.NewState("c"), time.Unix(0, 0)
			if tt.first == nil {
				tt.first = first
			}
			// What is stale stays so with the next commit, which changes a job of somebody else.
			last := slices.Clone(tt.next)
			for i := range last {
				if last[i].Dir == "w" {
					last[i] = job("w", "w", 3)
				}
			}
			for n, packages := range [][]schema.CompiledPackage{tt.first, tt.next, last} {
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
