package reconciler_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
)

// TestWarnings: the status has the warnings of the commit that is applied, and no others,
// also where a commit changes no package.
func TestWarnings(t *testing.T) {
	t.Parallel()
	c := newCell()
	messages := func() (out []string) {
		for _, w := range c.status().Warnings {
			out = append(out, w.Diagnostic.Position.Path+": "+w.Diagnostic.Message)
		}
		return out
	}
	check := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, messages()); diff != "" {
			t.Errorf("%s: -want +got\n%s", what, diff)
		}
	}
	link := schema.Compiled{Diagnostics: schema.NotFollowed(map[string]string{"teams/l.cue": "a symbolic link"})}
	job := good(pkg("teams/a", service("a", "web", 1, "v")))
	root := func(objects ...any) schema.CompiledPackage { return good(pkg(".", objects...)) }
	noCell := ": no cell is declared, so the names of cells in jobs are not checked, and no cell has a policy of its own"

	c.commit(compiled("1", root(tenant("a", "teams/a", "teams/x"), newQuota("q", "ann", 1)), job))
	check("without effect", noCell,
		"x.cue: directory teams/x has no packages",
		`x.cue: no tenant has the user "ann", so nobody can use this quota`)

	declared := root(tenant("a", "teams/a", "teams/x"), newQuota("q", "ann", 1))
	c.commit(compiled("1b", declared, job, bad("teams/b")))
	check("beside a package that does not compile", noCell,
		"x.cue: directory teams/x has no packages",
		`x.cue: no tenant has the user "ann", so nobody can use this quota`)

	c.commit(compiled("1c", declared, job, bad("cells/c")))
	check("beside one that may declare tenants and cells", "x.cue: directory teams/x has no packages")

	policy := root(schema.Cell{Name: "c", Quota: "off"}, tenant("a", "teams/a"))
	c.commit(compiled("2", policy, job))
	check("right")

	three := compiled("3", policy, job)
	three.Diagnostics = link.Diagnostics
	c.commit(three)
	check("a link", "teams/l.cue: a symbolic link: not followed")

	silenced := job
	silenced.Diagnostics = []schema.Diagnostic{{Severity: schema.Warning, Rule: schema.RuleNoEffect, Position: schema.Position{Path: "teams/a/x.cue", Line: 1, Column: 1}, Message: "not read"}}
	c.commit(compiled("4", policy, silenced))
	check("a file", "teams/a/x.cue: not read")

	c.commit(compiled("5", bad("."), silenced))
	check("what says who owns what is as before", "teams/a/x.cue: not read")

	unread := compiled("6")
	unread.Diagnostics = slices.Clone(bad("cue.mod").Diagnostics)
	c.commit(unread)
	check("unread", "teams/a/x.cue: not read")

	c.commit(compiled("7", policy, job))
	check("right again")
}

// TestWarningsBesideErrors: an error of one package hides no warning of what does not depend on it.
func TestWarningsBesideErrors(t *testing.T) {
	t.Parallel()
	declared := good(pkg(".", schema.Cell{Name: "c", Quota: "off"}, tenant("a", "teams/a", "teams/x", "teams/unread/y"), newQuota("q", "ann", 1)))
	job := good(pkg("teams/a", service("a", "web", 1, "v")))
	refused := bad("teams/unread")
	refused.Below = true
	const path, quota = "directory teams/x has no packages", `no tenant has the user "ann", so nobody can use this quota`
	for name, tc := range map[string]struct {
		beside schema.CompiledPackage
		want   []string
	}{
		"does not compile":        {bad("teams/b"), []string{path, quota}},
		"what it may not declare": {good(pkg("teams/a/b", service("nobody", "web", 1, "v"))), []string{path, quota}},
		"may declare tenants":     {bad("cells/c"), []string{path}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ds := reconciler.Take(compiled("1", declared, job, refused, tc.beside))
			var got []string
			for _, d := range ds {
				if d.Rule == schema.RuleNoEffect {
					got = append(got, d.Message)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestMisspelledPath: what is in a directory of nobody is reported at the path that was to be that directory, in the place
// of the warning about the path; not so if the path is there, or is another word.
func TestMisspelledPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]string{
		"teams/serach": {`x.cue:2:1: directory teams/search belongs to no tenant, so no job may be declared in it: did you mean "teams/search"?`},
		"teams/video": {
			`teams/search/x.cue:1:1: directory teams/search belongs to no tenant, so no job may be declared in it: add "teams/search" to the paths of tenant "a" (x.cue:2:1), which has the user "a", or move the file`,
			"x.cue:2:1: directory teams/video has no packages: correct the path, or remove it",
		},
		"teams/seerch": {
			`teams/search/x.cue:1:1: directory teams/search belongs to no tenant, so no job may be declared in it: add "teams/search" to the paths of tenant "a" (x.cue:2:1), which has the user "a", or move the file`,
		},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			_, ds := reconciler.Take(compiled("1", good(pkg(".", schema.Cell{Name: "c"}, tenant("a", path))),
				good(pkg("teams/search", service("a", "web", 1, "v"))), good(pkg("teams/seerch"))))
			var got []string
			for _, d := range ds {
				got = append(got, fmt.Sprintf("%s: %s: %s", d.Position, d.Message, d.Hint))
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
