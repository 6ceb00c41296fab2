package reconciler_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// partsUsers are the users of a test, with the directories that may have their jobs: two
// tenants share the user s.
var partsUsers = map[string][]string{
	"a": {"teams/a", "teams/a/deep"},
	"b": {"teams/b", "teams/b2"},
	"s": {"teams/s", "teams/t", "teams/t/deep"},
}

func partsRoot(t *rapid.T) *schema.Package {
	objects := []any{
		schema.Cell{Name: "c", Quota: "on"},
		schema.Tenant{Name: "a", Users: []string{"a"}, Paths: []string{"teams/a"}},
		schema.Tenant{Name: "b", Users: []string{"b"}, Paths: []string{"teams/b", "teams/b2"}},
		schema.Tenant{Name: "s", Users: []string{"s"}, Paths: []string{"teams/s"}},
		schema.Tenant{Name: "t", Users: []string{"s"}, Paths: []string{"teams/t"}},
		schema.Tenant{Name: "p", Paths: []string{"platform"}, Capabilities: []string{schema.CapabilityAdmin}},
	}
	for _, user := range slices.Sorted(maps.Keys(partsUsers)) {
		objects = append(objects, newQuota(user+"-prod", user, rapid.IntRange(5, 40).Draw(t, "quota")))
	}
	return pkg(".", objects...)
}

// drawParts draws a commit: jobs move between the directories of their user, some of which
// are broken, and some names are declared twice.
func drawParts(t *rapid.T, commit string, root *schema.Package) schema.Compiled {
	byDir := map[string][]any{}
	for _, user := range slices.Sorted(maps.Keys(partsUsers)) {
		dirs := partsUsers[user]
		for i := range 4 {
			if rapid.IntRange(0, 3).Draw(t, "there") == 0 {
				continue
			}
			j := service(user, fmt.Sprintf("j%d", i), rapid.IntRange(0, 12).Draw(t, "tasks"), rapid.SampledFrom([]string{"v", "w"}).Draw(t, "version"))
			j.Priority = schema.Priority(200 + rapid.IntRange(0, 3).Draw(t, "priority"))
			if i < 2 && rapid.Bool().Draw(t, "gang") {
				j.Gang = "g"
			}
			for range 1 + rapid.IntRange(0, 9).Draw(t, "twice")/9 {
				dir := rapid.SampledFrom(dirs).Draw(t, "dir")
				byDir[dir] = append(byDir[dir], j)
			}
		}
	}
	c := compiled(commit, good(root), good(pkg("platform")))
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		seen := map[string]bool{}
		objects := slices.DeleteFunc(byDir[dir], func(o any) bool {
			j, _ := o.(schema.Job)
			again := seen[j.Name]
			seen[j.Name] = true
			return again
		})
		p := good(pkg(dir, objects...))
		if rapid.IntRange(0, 9).Draw(t, "bad") == 0 {
			p = bad(dir)
		}
		c.Packages = append(c.Packages, p)
	}
	c.AllowPrune = rapid.SampledFrom([]int{0, 0, 20, 200}).Draw(t, "allow")
	return c
}

// firstPart is the part of a commit without some of its packages.
func firstPart(c schema.Compiled, late map[string]bool) schema.Compiled {
	c.Packages, c.Partial = slices.Clone(c.Packages), true
	for i := range c.Packages {
		if p := &c.Packages[i]; late[p.Dir] {
			*p = schema.CompiledPackage{Dir: p.Dir, Diagnostics: []schema.Diagnostic{{
				Severity: schema.Error, Rule: schema.RulePending, Position: schema.Position{Path: p.Dir + "/x.cue", Line: 1, Column: 1}, Message: "it takes long",
			}}}
		}
	}
	return c
}

// read gives a cell a commit with the trailers that its source would read.
func (c *cell) read(next schema.Compiled) {
	if c.state.Head.Commit == next.Commit {
		next.Trailers = schema.Trailers{}
	}
	c.commit(next)
}

// runs returns what a cell has admitted, by user and by job.
func (c *cell) runs() map[string]map[string]schema.Job {
	out := map[string]map[string]schema.Job{}
	for name, r := range c.state.Jobs {
		if r.Admitted != "" {
			if out[name.User] == nil {
				out[name.User] = map[string]schema.Job{}
			}
			out[name.User][name.Short()] = *c.state.Data[r.Admitted]
		}
	}
	return out
}

// A commit that is applied in parts, whichever packages are late and whichever master
// does it, ends as one that is applied whole; between them, what a user has is as before
// or as after. But for removals that a guard holds of the whole: of these a part may
// let go what would be little enough by itself.
func TestPartsEndAsTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole, parts := newCell(), newCell()
		root := partsRoot(t)
		for i := range rapid.IntRange(2, 5).Draw(t, "commits") {
			newRoot := rapid.IntRange(0, 4).Draw(t, "root") == 0
			if newRoot {
				root = partsRoot(t)
			}
			c := drawParts(t, fmt.Sprint(i), root)
			before := parts.runs()
			if newRoot && len(parts.last.Admission.Rejected) > 0 {
				return // it may have room under a new quota, as of a commit of its own; and what is admitted stays
			}
			whole.read(c)
			whole.step()

			late := map[string]bool{}
			for _, p := range c.Packages[1:] {
				late[p.Dir] = rapid.IntRange(0, 2).Draw(t, "late") == 0 && (p.Dir != "platform" || rapid.Bool().Draw(t, "platform"))
			}
			for n := range rapid.IntRange(1, 3).Draw(t, "times") { // also by a new master
				if n > 0 && rapid.Bool().Draw(t, "more") {
					for _, dir := range slices.Sorted(maps.Keys(late)) {
						late[dir] = late[dir] && rapid.Bool().Draw(t, "still late")
					}
				}
				parts.read(firstPart(c, late))
				if rapid.Bool().Draw(t, "crash before") {
					parts.restart()
				}
				parts.step()
				if rapid.Bool().Draw(t, "crash after") {
					parts.restart()
				}
			}
			middle := parts.runs()
			parts.read(c)
			parts.step()

			want, got := whole.state.Head, parts.state.Head
			if got.Rest.AllowPrune != 0 || got.Rest.Gone != nil {
				t.Fatalf("commit %d: of a whole commit the rest is %+v", i, got.Rest)
			}
			if want.Held != nil {
				onlyHeld(t, &want, &got)
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("commit %d, late %v (-whole +parts):\n%s", i, late, diff)
			}
			after := whole.runs()
			for user := range partsUsers {
				if diff := cmp.Diff(after[user], parts.runs()[user]); diff != "" {
					t.Fatalf("commit %d, late %v, what %s runs (-whole +parts):\n%s", i, late, user, diff)
				}
				if !cmp.Equal(middle[user], before[user]) && !cmp.Equal(middle[user], after[user]) {
					t.Fatalf("commit %d, late %v: between its parts %s runs neither what it did nor what it shall:\n%s", i, late, user, cmp.Diff(middle[user], after[user]))
				}
			}
		}
	})
}

// onlyHeld requires that nothing is held of a commit in parts that is not held of the whole.
func onlyHeld(t *rapid.T, whole, parts *schema.Head) {
	if diff := cmp.Diff(whole.Packages, parts.Packages); diff != "" {
		t.Fatalf("packages (-whole +parts):\n%s", diff)
	}
	names := map[string]bool{}
	for _, j := range whole.Held.Jobs {
		names[j.Job] = true
	}
	if parts.Held != nil {
		for _, j := range parts.Held.Jobs {
			if !names[j.Job] {
				t.Fatalf("%s is held of the parts (-whole +parts):\n%s", j.Job, cmp.Diff(whole.Held, parts.Held))
			}
		}
	}
}
