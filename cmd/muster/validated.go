package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// sums are how many there are of what a valid repository has.
type sums struct {
	Jobs      int `json:"jobs"`
	AllocSets int `json:"allocSets"`
	Quotas    int `json:"quotas"`
	Tenants   int `json:"tenants"`
	Policies  int `json:"policies"`
	Tests     int `json:"tests"`
}

// text returns them in words.
func (s sums) text() string {
	t := schema.Count(s.Jobs, "job")
	if s.AllocSets > 0 {
		t += ", " + schema.Count(s.AllocSets, "alloc set")
	}
	t += ", " + schema.Count(s.Quotas, "quota") + ", " + schema.Count(s.Tenants, "tenant")
	if s.Policies == 1 {
		t += ", 1 policy"
	} else if s.Policies > 1 {
		t += fmt.Sprintf(", %d policies", s.Policies)
	}
	if s.Tests > 0 {
		t += ", " + schema.Count(s.Tests, "test")
	}
	return t
}

// sum counts what is in a repository.
func (c *compiledRepo) sum() sums {
	return sums{
		Jobs: len(c.objects.Jobs), AllocSets: len(c.objects.AllocSets), Quotas: len(c.objects.Quotas),
		Tenants: len(c.objects.Tenants), Policies: policies(c.compiled), Tests: c.tests,
	}
}

// validated is what a check has found, as the cache keeps it. The check needs the data of
// all packages, whatever has changed; where nothing has, reading what it found is enough.
type validated struct {
	Sums        sums                `json:"sums"`
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
	// After and Before are the times between which the same quotas count; zero for no
	// bound.
	After  time.Time `json:"after"`
	Before time.Time `json:"before"`
}

// holds reports whether a check at a time finds the same.
func (f *validated) holds(when time.Time) bool {
	return (f.After.IsZero() || when.After(f.After)) && (f.Before.IsZero() || when.Before(f.Before))
}

// foundAt returns what a check at a time has found, nil if another one of the same files may
// find something else: where a limit was exceeded, which may have been for the load of the
// machine, and at the very moment at which a quota begins or ends.
func foundAt(c *compiledRepo, when time.Time) *validated {
	f := &validated{Sums: c.sums, Diagnostics: c.diagnostics}
	for _, d := range c.diagnostics {
		if d.Rule == schema.RuleLimit || d.Rule == schema.RuleInternal {
			return nil
		}
	}
	for i := range c.compiled.Packages { // also those whose quotas are not taken
		p := c.compiled.Packages[i].Package
		if p == nil {
			continue
		}
		for j := range p.Objects.Quotas {
			for _, t := range []time.Time{p.Objects.Quotas[j].From, p.Objects.Quotas[j].Until} {
				switch {
				case t.IsZero():
				case t.Before(when):
					f.After = slices.MaxFunc([]time.Time{f.After, t}, time.Time.Compare)
				case f.Before.IsZero() || t.Before(f.Before):
					f.Before = t
				}
			}
		}
	}
	if !f.holds(when) {
		return nil
	}
	return f
}

// key identifies what a check of a tree depends on, but for the time and this program.
func (v *validation) key(dir string, tree schema.Tree) string {
	h := sha256.New()
	// Strings as %q, so that no two lists of them give the same bytes.
	fmt.Fprintf(h, "check 2 %q %q %q %q %v\n", dir, v.rev, v.cell, tree.Commit, v.tests)
	for _, name := range slices.Sorted(maps.Keys(tree.Files)) {
		fmt.Fprintf(h, "%q %q\n", name, tree.Files[name].Hash)
	}
	for _, d := range tree.Diagnostics {
		fmt.Fprintf(h, "%q %q %q\n", d.Severity, d.Rule, d.Error())
	}
	return "check " + hex.EncodeToString(h.Sum(nil))
}

// remembered returns what an earlier check found that holds for a time, nil for none.
func remembered(c *fileCache, key string, when time.Time) *validated {
	digest, rest, ok := bytes.Cut(c.Load(key), []byte("\n"))
	if !ok || string(digest) != string(schema.DigestBytes(rest)) {
		return nil
	}
	f := &validated{}
	if err := json.Unmarshal(rest, f); err != nil || !f.holds(when) {
		return nil
	}
	return f
}

// remember keeps what a check has found.
func remember(c *fileCache, key string, f *validated) {
	data, err := json.Marshal(f)
	if err != nil {
		return // then the next one finds it again
	}
	c.Save(key, append([]byte(string(schema.DigestBytes(data))+"\n"), data...))
}
