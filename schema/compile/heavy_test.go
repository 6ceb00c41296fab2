package compile_test

import (
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
	var errs []schema.Diagnostic
	for _, d := range compile.Diagnostics(out) {
		if d.Severity == schema.Error {
			errs = append(errs, d)
		}
	}
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
	for _, d := range compile.Diagnostics(out) {
		if d.Severity == schema.Error {
			t.Errorf("once the policy is light: %v", d)
		}
	}
}
