package compile_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/schema/compile"
)

// TestSharedMistake: what is wrong in a file of tests beside the tests is reported once, and what a test expects
// has no line break.
func TestSharedMistake(t *testing.T) {
	t.Parallel()
	in := map[string]string{
		"teams/a/a.cue":      "package a\n\njob: a: {user: \"a\", cell: \"local\", task: process: command: [\"/bin/true\"], task: resources: ramBytes: 64Mi}\n",
		"teams/a/a_test.cue": "package a\n\ntest: one: want: job: a: tasks: 1\ntest: two: want: job: a: tasks: 1\ntset: three: want: job: a: tasks: 1\n",
	}
	c := compiler(t, compile.Config{})
	results, err := c.Test(t.Context(), tree(in), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || results[0].Name != "" || results[0].Line != 5 || len(results[0].Diagnostics) != 1 {
		t.Errorf("got %v, want the mistake once", results)
	}
	in["teams/a/a_test.cue"] = "package a\n\ntest: one: want: job: a: {\n\ttask: health: {\n\t\thttp: {port: \"http\", path: \"/\"}\n\t\tfailures: 2\n\t}\n}\n"
	if results, err = c.Test(t.Context(), tree(in), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || len(results[0].Diagnostics) != 1 {
		t.Fatalf("got %v, want one mistake", results)
	}
	if got, want := results[0].Diagnostics[0].Expected, `{http: {port: "http", path: "/"}, failures: 2}`; strings.ReplaceAll(got, "\t", "") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPrioritiesOfTests: the tests of a directory with policies have the names of priorities as they are written.
func TestPrioritiesOfTests(t *testing.T) {
	t.Parallel()
	job := "job: a: {user: \"a\", cell: \"local\", priority: \"production\", labels: tier: \"production\", task: process: command: [\"/bin/true\"], task: resources: ramBytes: 64Mi}\n"
	results, err := compiler(t, compile.Config{}).Test(t.Context(), tree(map[string]string{
		"cells/a/a.cue":      "package a\n\n_policy: few: {message: \"few\", job: priority: !=\"monitoring\"}\n" + job,
		"cells/a/a_test.cue": "package a\n\n_sys: {priority: \"production\"}\n_policy: _sys: job: {priority: \"production\"}\ntest: one: want: job: a: {_sys, labels: tier: _sys.priority}\ntest: two: want: job: a: labels: tier: _policy._sys.job.priority\n",
	}), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if len(r.Diagnostics) > 0 {
			t.Errorf("test %s: got %v, want nothing", r.Name, r.Diagnostics)
		}
	}
	if len(results) != 2 {
		t.Errorf("got %d tests, want 2", len(results))
	}
}
