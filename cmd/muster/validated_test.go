package main

import (
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// TestFoundAt: what a check finds holds until a quota begins or ends, and is not remembered
// where it may have been bad luck.
func TestFoundAt(t *testing.T) {
	t.Parallel()
	at := func(day int) time.Time { return time.Date(2027, 1, day, 0, 0, 0, 0, time.UTC) }
	c := &compiledRepo{compiled: schema.Compiled{Packages: []schema.CompiledPackage{
		{Dir: "broken"},
		{Dir: "a", Package: &schema.Package{Objects: schema.Objects{Quotas: []schema.Quota{{From: at(3), Until: at(20)}, {Until: at(10)}, {}}}}},
	}}}
	for _, tt := range []struct{ when, from, to int }{{1, -100, 2}, {4, 4, 9}, {15, 11, 19}, {25, 21, 400}} {
		f := foundAt(c, at(tt.when))
		if f == nil {
			t.Fatalf("day %d: nothing", tt.when)
		}
		for day := -100; day <= 400; day++ {
			if got, want := f.holds(at(day)), tt.from <= day && day <= tt.to; got != want {
				t.Errorf("found on day %d: holds on day %d: %v", tt.when, day, got)
			}
		}
	}
	for _, day := range []int{3, 10, 20} {
		if f := foundAt(c, at(day)); f != nil {
			t.Errorf("at the moment of a change, day %d: %+v", day, f)
		}
	}
	for rule, kept := range map[schema.Rule]bool{schema.RuleLimit: false, schema.RuleInternal: false, schema.RuleNotSet: true} {
		c.diagnostics = []schema.Diagnostic{{Severity: schema.Error, Rule: rule}}
		if f := foundAt(c, at(1)); (f != nil) != kept {
			t.Errorf("with a mistake of rule %s: %v", rule, f)
		}
	}
}

// TestRemembered: what is damaged is not taken, and each part of a tree has a part in its key.
func TestRemembered(t *testing.T) {
	t.Parallel()
	cache, _ := cacheIn(t)
	tree := schema.Tree{Files: map[string]schema.File{"a.cue": {Hash: "1"}}}
	v := &validation{tests: true}
	key := v.key("d", tree)
	remember(cache, key, &validated{Sums: sums{Jobs: 3}})
	if f := remembered(cache, key, time.Now()); f == nil || f.Sums.Jobs != 3 {
		t.Errorf("got %v", f)
	}
	data := cache.Load(key)
	data[len(data)-2] ^= 1
	cache.Save(key, data)
	if f := remembered(cache, key, time.Now()); f != nil {
		t.Errorf("damaged, and taken: %v", f)
	}
	keys := map[string]bool{key: true}
	for _, other := range []string{
		v.key("e", tree), (&validation{}).key("d", tree), (&validation{tests: true, rev: "HEAD"}).key("d", tree),
		v.key("d", schema.Tree{Commit: "c", Files: tree.Files}),
		v.key("d", schema.Tree{Files: map[string]schema.File{"a.cue": {Hash: "2"}}}),
		v.key("d", schema.Tree{Files: map[string]schema.File{"b.cue": {Hash: "1"}}}),
		v.key("d", schema.Tree{Files: tree.Files, Diagnostics: []schema.Diagnostic{{Message: "x"}}}),
	} {
		if keys[other] {
			t.Error("two with the same key")
		}
		keys[other] = true
	}
}
