package compile_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema/compile"
)

// TestExclude checks whose directories are left out.
func TestExclude(t *testing.T) {
	t.Parallel()
	weights := func(counts map[string]int) map[string]int {
		m := map[string]int{}
		for dir, n := range counts {
			for i := range n {
				m[fmt.Sprintf("%s/%d", dir, i)] = 1
			}
		}
		return m
	}
	for _, test := range []struct {
		name    string
		weights map[string]int
		limit   int
		want    []string
	}{
		{"nobody", weights(map[string]int{"teams/a": 5, "teams/b": 5}), 10, nil},
		{"one team", weights(map[string]int{"teams/a": 5, "teams/b": 5, "teams/evil": 1000}), 10, []string{"teams/evil"}},
		{"deep within a team", weights(map[string]int{"teams/a/x": 1000, "teams/a/y": 3, "teams/b": 5}), 10, []string{"teams/a/x"}},
		{"at the top", weights(map[string]int{"a": 5, "evil": 1000}), 10, []string{"evil"}},
		{"two teams", weights(map[string]int{"t/a": 500, "t/b": 400, "t/c": 3, "t/d": 4, "t/e": 3}), 10, []string{"t/a", "t/b"}},
		{"one heavy directory", map[string]int{".": 3, "a": 7, "b": 90, "c": 3}, 15, []string{"b"}},
		{"the root itself", map[string]int{".": 90, "a": 7}, 15, []string{"."}},
	} {
		if diff := cmp.Diff(test.want, compile.Exclude(test.weights, test.limit)); diff != "" {
			t.Errorf("%s: -want +got\n%s", test.name, diff)
		}
	}
}

// TestManyDirectories compiles a commit of more packages than it may have: the
// directory that they are in is refused as a whole, the rest is compiled.
func TestManyDirectories(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"good/a.cue": "package good\n\n" + fmt.Sprintf(runs, `"x"`),
		"user/a.cue": "package user\n\nimport \"example.com/config/evil/7\"\n\n_x: \"7\"\n",
	}
	for i := range 100_000 {
		files[fmt.Sprintf("evil/%d/f.cue", i)] = "package p\n"
	}
	out, err := compiler(t, compile.Config{}).Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	want := `evil/0/f.cue:1:1: error limit
	the repository has 100003 packages, more than 10000; the 100000 below evil are not read
	hint: declare several jobs in a directory
user/a.cue:3:8: error import
	imports evil/7, which is not read
	hint: correct the error of that directory first
evil: no data
good: 1 objects
	good/a.cue:3:6: job local/a/web
user: no data
`
	if diff := cmp.Diff(want, show(out)); diff != "" {
		t.Error(diff)
	}
	for _, p := range out.Packages {
		if p.Below != (p.Dir == "evil") {
			t.Errorf("%s: below is %v", p.Dir, p.Below)
		}
	}
}

// TestCommitBytes gives a commit more data than it may have: the largest
// packages are refused, whatever the order and the cache.
func TestCommitBytes(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 8 {
		var b strings.Builder
		fmt.Fprintf(&b, "package p%d\n\n", i)
		for n := range 1 + i {
			fmt.Fprintf(&b, "job: \"j%d-%d\": {user: \"a\", cell: \"local\", task: {process: command: [\"x\"], env: X: \"%s\"}}\n", i, n, strings.Repeat("x", 1000))
		}
		files[fmt.Sprintf("p%d/a.cue", i)] = b.String()
	}
	var want string
	for _, workers := range []int{1, 4} {
		c := compiler(t, compile.Config{Workers: workers, Limits: compile.Limits{CommitBytes: 30_000}})
		for range 3 {
			out, err := c.Compile(t.Context(), tree(files))
			if err != nil {
				t.Fatal(err)
			}
			if want == "" {
				want = show(out)
			}
			if diff := cmp.Diff(want, show(out)); diff != "" {
				t.Errorf("%d workers: %s", workers, diff)
			}
		}
	}
	for dir, taken := range map[string]bool{"p0: 1": true, "p5: 6": true, "p6: no": false, "p7: no": false} {
		if !strings.Contains(want, "\n"+dir) {
			t.Errorf("%s is not as expected (%v) in\n%s", dir, taken, want)
		}
	}
}

// TestManyHostile compiles far more packages that never end than anyone would
// wait for at the full limit, and the good one among them; and then, with a
// change elsewhere, waits for few of them.
func TestManyHostile(t *testing.T) {
	t.Parallel()
	const n, limit = 16, 300 * time.Millisecond
	files := map[string]string{"good/a.cue": "package good\n\n" + fmt.Sprintf(runs, `"x"`)}
	for i := range n {
		files[fmt.Sprintf("evil/%02d/p.cue", i)] = endless
	}
	var log bytes.Buffer
	c := compiler(t, compile.Config{Limits: compile.Limits{CPU: limit}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, most := range []int{n, 4} {
		out, err := c.Compile(t.Context(), tree(files))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range out.Packages {
			switch {
			case p.Dir == "good" && p.Package == nil:
				t.Errorf("the good package has no data: %v", p.Diagnostics)
			case strings.HasPrefix(p.Dir, "evil/") && (len(p.Diagnostics) != 1 || !strings.Contains(p.Diagnostics[0].Message, "processor time")):
				t.Errorf("%s: %v", p.Dir, p.Diagnostics)
			}
		}
		if ended := strings.Count(log.String(), "compile child ended"); ended > most {
			t.Errorf("%d children ended, want at most %d", ended, most)
		}
		if most == n && strings.Count(log.String(), " 300ms of") > 8 {
			t.Errorf("the limit did not shrink: %s", &log)
		}
		log.Reset()
		files["good/a.cue"] += "// changed\n"
	}
}

// TestExcluded checks that a package that a child died of is remembered by what
// it is, and that a changed one is evaluated after all others.
func TestExcluded(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a/a.cue": endless, "b/b.cue": "package b\n", "c/c.cue": "package c\n"}
	c := compiler(t, compile.Config{Limits: compile.Limits{AllocBytes: 64 << 20}})
	if _, err := c.Compile(t.Context(), tree(files)); err != nil {
		t.Fatal(err)
	}
	if order := c.Order(tree(files)); len(order) > 0 {
		t.Errorf("evaluated again: %v", order)
	}
	for name := range files {
		files[name] += "// changed\n"
	}
	if diff := cmp.Diff([]string{"b", "c", "a"}, c.Order(tree(files))); diff != "" {
		t.Error(diff)
	}
	files["a/a.cue"] = "package a\n"
	if _, err := c.Compile(t.Context(), tree(files)); err != nil {
		t.Fatal(err)
	}
	for name := range files {
		files[name] += "// changed again\n"
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, c.Order(tree(files))); diff != "" {
		t.Errorf("harmless by now: %s", diff)
	}
}

// TestRefusedPolicies: a directory that is refused whole takes its policies with it, and no
// package may pass for that.
func TestRefusedPolicies(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"cells/c/p.cue": "package c\n\n_policy: \"few\": {message: \"at most 3\", job: tasks: <=3}\n",
		"teams/a.cue":   "package a\n\njob: web: {user: \"u\", cell: \"c\", tasks: 9, task: process: command: [\"x\"]}\n",
	}
	for i := range 3 {
		files[fmt.Sprintf("cells/c/x%d.cue", i)] = "package c\n"
	}
	out, err := compiler(t, compile.Config{Limits: compile.Limits{Files: 3}}).Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	got := show(out)
	if !strings.Contains(got, "cells/c/p.cue:3:1: error policy\n") || !strings.Contains(got, "teams: no data\n") {
		t.Errorf("got\n%s", got)
	}
}
