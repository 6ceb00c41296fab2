package compile_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// TestHeavyPolicy: policies that take too much are reported once, where they are, and not in each package that
// they are for nor in its tests, which are not evaluated.
func TestHeavyPolicy(t *testing.T) {
	t.Parallel()
	const job = "package a\n\njob: NAME: {user: \"a\", cell: \"local\", task: process: command: [\"/bin/true\"], task: resources: ramBytes: 64Mi}\n"
	in := map[string]string{
		"tenants.cue": "package config\n\ntenant: a: {paths: [\"teams\"], users: [\"a\"]}\n",
		"cells/policy/policy.cue": "package policy\n\nimport \"list\"\n\n_n: list.Range(0, 3000, 1)\n" +
			"_policy: heavy: {message: \"m\", job: _all: [for a in _n for b in _n {a * b}]}\n",
		"teams/a/a.cue":      strings.Replace(job, "NAME", "a", 1),
		"teams/b/b.cue":      strings.Replace(job, "NAME", "b", 1),
		"teams/b/b_test.cue": "package a\n\ntest: one: want: job: b: tasks: 1\ntest: two: want: job: b: tasks: 1\n",
	}
	c := compiler(t, compile.Config{Limits: compile.Limits{CPU: 2 * time.Second}})
	out, err := c.Compile(t.Context(), tree(in))
	if err != nil {
		t.Fatal(err)
	}
	errs := errorsOf(out)
	if len(errs) != 1 || errs[0].Path != "cells/policy/policy.cue" || errs[0].Line != 6 || errs[0].Rule != schema.RuleLimit || !strings.Contains(errs[0].Message, "3 other packages do not compile") {
		t.Errorf("got %v, want one error at the policy", errs)
	}
	results, err := c.Test(t.Context(), tree(in), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || len(results[0].Diagnostics) != 1 || results[0].Diagnostics[0].Path != "cells/policy/policy.cue" {
		t.Errorf("got %v, want one result that says it", results)
	}
	in["cells/policy/policy.cue"] = "package policy\n\n_policy: light: {message: \"m\", job: tasks: 1}\n"
	if out, err = c.Compile(t.Context(), tree(in)); err != nil {
		t.Fatal(err)
	}
	if errs := errorsOf(out); len(errs) > 0 {
		t.Errorf("once the policy is light: %v", errs)
	}
}

// TestHeavyWithJobs: a policy that is heavy only with the jobs that it is applied to is reported once, at the policy,
// with how many packages it holds up. Where it is not heavy it holds up none, also if they are evaluated last; further
// packages of an owner get a part of the limit, those of others all of it.
func TestHeavyWithJobs(t *testing.T) {
	t.Parallel()
	in := map[string]string{
		"cells/policy/policy.cue": "package policy\n\nimport \"list\"\n\n" +
			"_policy: fine: {message: \"m\", job: tasks: <1000}\n" +
			"_policy: heavy: {message: \"m\", job: {tasks: int, _n: list.Range(0, tasks*100, 1), _all: [for a in _n for b in _n if a*b == -1 {a}]}}\n",
	}
	tenants := "package config\n"
	for i, name := range []string{"a", "b", "c", "d", "light"} {
		tenants += fmt.Sprintf("\ntenant: %[1]s: {paths: [\"teams/%[1]s\"], users: [%[1]q]}\n", name)
		tasks := 100
		if name == "light" {
			tasks = 1
		}
		in["teams/"+name+"/p.cue"] = fmt.Sprintf("package p\n\njob: %[1]s: {user: %[1]q, cell: \"local\", tasks: %[2]d, task: process: command: [\"/bin/true\"], task: resources: ramBytes: 64Mi}\n%[3]s",
			name, tasks, strings.Repeat("//\n", 10*i))
	}
	for _, name := range []string{"x", "y"} { // after the others
		in["teams/a/"+name+"/p.cue"] = strings.ReplaceAll(in["teams/d/p.cue"], "job: d: {user: \"d\"", "job: "+name+": {user: \"a\"") + strings.Repeat("//\n", 50)
	}
	in["tenants.cue"] = tenants
	in["teams/a/p_test.cue"] = "package p\n\ntest: one: want: job: a: tasks: 100\ntest: two: want: job: a: tasks: 100\n"
	var said strings.Builder
	c := compiler(t, compile.Config{Workers: 1, Limits: compile.Limits{CPU: 2 * time.Second}, Log: slog.New(slog.NewTextHandler(&said, nil))})
	for range 2 { // the second time from the cache, with those that were given less
		out, err := c.Compile(t.Context(), tree(in))
		if err != nil {
			t.Fatal(err)
		}
		errs := errorsOf(out)
		if len(errs) != 1 || errs[0].Path != "cells/policy/policy.cue" || errs[0].Line != 6 || errs[0].Field != "_policy.heavy" || errs[0].Rule != schema.RuleLimit || !strings.Contains(errs[0].Message, "6 other packages do not compile") {
			t.Errorf("got %v, want one error at the policy", errs)
		}
		for _, p := range out.Packages {
			if p.Dir == "teams/light" && p.Package == nil {
				t.Errorf("the policy is light with it: %v", p.Diagnostics)
			}
		}
	}
	for part, want := range map[string]int{"2s": 6, "200ms": 2} { // all are tried again with all of it
		if n := strings.Count(said.String(), "more than "+part+" of"); n != want {
			t.Errorf("%d packages had %s for it, want %d:\n%s", n, part, want, said.String())
		}
	}
	results, err := c.Test(t.Context(), tree(in), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if len(r.Diagnostics) != 1 || r.Diagnostics[0].Field != "_policy.heavy" || strings.Contains(r.Diagnostics[0].Hint, "more than 2s") {
			t.Errorf("%s: got %v, want the error at the policy, after a part of the limit", r.Name, r.Diagnostics)
		}
	}
	if len(results) != 2 {
		t.Errorf("%d results, want 2", len(results))
	}
}
