package compile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// shared are the packages of two tenants in a repository; more are of the first.
func shared(more map[string]string) map[string]string {
	files := map[string]string{"tenants.cue": `package config

import "example.com/config/muster"

tenant: a: muster.#Tenant & {paths: ["teams/a", "more/a"], users: ["a"]}
tenant: b: muster.#Tenant & {paths: ["teams/b"], users: ["b"]}
`}
	files["teams/b/b.cue"] = "package b\n\njob: web: {user: \"b\", cell: \"local\", task: process: command: [\"x\"]}\n"
	for name, text := range more {
		files[name] = text
	}
	return files
}

// TestTooMuchOfOne: where many packages of a tenant take more than a package may, the
// larger ones of it are not tried, and that is one mistake. Another tenant's package goes
// ahead, and the outcome is the same with any number of workers and whatever is cached.
func TestTooMuchOfOne(t *testing.T) {
	t.Parallel()
	more := map[string]string{}
	for i := range 12 {
		dir := []string{"teams/a", "more/a"}[i%2]
		more[fmt.Sprintf("%s/p%02d/p.cue", dir, i)] = endless + strings.Repeat("//\n", i)
	}
	files := tree(shared(more))
	var first string
	for _, workers := range []int{1, 4} {
		c := compiler(t, compile.Config{Workers: workers, Limits: compile.Limits{CPU: 300 * time.Millisecond}})
		for _, state := range []string{"cold", "warm"} {
			out, err := c.Compile(t.Context(), files)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, p := range out.Packages {
				got += fmt.Sprintf("%s %v %v\n", p.Dir, p.Package != nil, p.Diagnostics)
				if p.Dir == "teams/b" && p.Package == nil {
					t.Errorf("the other tenant's package has no data: %v", p.Diagnostics)
				}
			}
			ruled(t, out)
			if n := len(compile.Diagnostics(out)); n != 3+1 {
				t.Errorf("%d mistakes, want 3 and one of what was not tried: %v", n, compile.Diagnostics(out))
			}
			if first == "" {
				first = got
			}
			if diff := cmp.Diff(first, got); diff != "" {
				t.Errorf("%d workers, %s: -want +got\n%s", workers, state, diff)
			}
		}
	}
	if !strings.Contains(first, `3 packages of tenant \"a\" exceed`) && !strings.Contains(first, `3 packages of tenant "a" exceed`) {
		t.Errorf("not said: %s", first)
	}
}

// TestMuchDataOfOne: a tenant's data is bounded, and the smallest packages of it are taken.
func TestMuchDataOfOne(t *testing.T) {
	t.Parallel()
	job := "job: \"w%d\": {user: %q, cell: \"local\", annotations: x: %q, task: process: command: [\"x\"]}\n"
	more := map[string]string{}
	for i := range 6 {
		more[fmt.Sprintf("teams/a/p%d/p.cue", i)] = fmt.Sprintf("package p%d\n\n", i) + fmt.Sprintf(job, i, "a", strings.Repeat("x", 3000+i))
	}
	for _, workers := range []int{1, 4} {
		c := compiler(t, compile.Config{Workers: workers, Limits: compile.Limits{OwnerBytes: 15_000}})
		for range 2 {
			out, err := c.Compile(t.Context(), tree(shared(more)))
			if err != nil {
				t.Fatal(err)
			}
			var taken []string
			for _, p := range out.Packages {
				if p.Package != nil && strings.HasPrefix(p.Dir, "teams/") {
					taken = append(taken, p.Dir)
				}
				for _, d := range p.Diagnostics {
					if d.Rule != schema.RuleLimit || !strings.Contains(d.Message, `that of tenant "a" is more than`) {
						t.Errorf("%s: %v", p.Dir, d)
					}
				}
			}
			if diff := cmp.Diff([]string{"teams/a/p0", "teams/a/p1", "teams/a/p2", "teams/a/p3", "teams/b"}, taken); diff != "" {
				t.Errorf("%d workers: -want +got\n%s", workers, diff)
			}
		}
	}
}

// TestTurns evaluates packages in turns over tenants, and what is small first.
func TestTurns(t *testing.T) {
	t.Parallel()
	more := map[string]string{}
	for i := range 60 {
		more[fmt.Sprintf("teams/a/p%02d/p.cue", i)] = "package p\n" + strings.Repeat("//\n", 60-i)
	}
	order := compiler(t, compile.Config{}).Order(tree(shared(more)))
	// Without an evaluation nobody knows the tenants: directories that lie together take turns.
	at := func(dir string) int {
		for i, d := range order {
			if d == dir {
				return i
			}
		}
		t.Fatalf("%s is not among %v", dir, order)
		return 0
	}
	if at("teams/b") > 5 || at("teams/a/p59") > at("teams/a/p00") {
		t.Errorf("the order is %v", order)
	}
}
