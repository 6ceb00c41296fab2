package compile_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// TestQuick: what takes long is left out, with a word, and the rest is there. What is known to
// take long is not tried again, and neither is anything once it was compiled.
func TestQuick(t *testing.T) {
	t.Parallel()
	more := map[string]string{"teams/a/good/p.cue": sized("a", "good", 1)}
	for i := range 6 {
		more[fmt.Sprintf("teams/a/p%d/p.cue", i)] = endless + strings.Repeat("//\n", i)
	}
	files := tree(shared(more))
	exe := filepath.Join(t.TempDir(), "exe")
	if err := os.Symlink(self(t), exe); err != nil {
		t.Fatal(err)
	}
	c := compile.New(compile.Config{Exe: exe, Args: []string{childArg}, Limits: compile.Limits{CPU: 2 * time.Second}})
	quick := func(later int) {
		t.Helper()
		out, err := c.Quick(t.Context(), files)
		if err != nil {
			t.Fatal(err)
		}
		whole := !out.Partial
		n := 0
		for _, d := range compile.Diagnostics(out) {
			if d.Rule == schema.RulePending && strings.Contains(d.Message, "compiled after the rest") {
				n++
			}
		}
		if dirs := taken(t, out); n != later || whole != (later == 0) || !slices.Equal(dirs, []string{"teams/a/good", "teams/b"}) {
			t.Errorf("taken %v, whole %v, %d for later, want %d", dirs, whole, n, later)
		}
	}
	quick(6)
	away := exe + "-away"
	if err := os.Rename(exe, away); err != nil {
		t.Fatal(err)
	}
	quick(6) // or there is no child
	if err := os.Rename(away, exe); err != nil {
		t.Fatal(err)
	}
	out, err := c.Compile(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(compile.Diagnostics(out)); n != 3+1 {
		t.Errorf("%d mistakes, want 3 and one of what was not tried: %v", n, compile.Diagnostics(out))
	}
	if err := os.Remove(exe); err != nil {
		t.Fatal(err)
	}
	quick(0)
}

// TestQuickOfMany: of many small packages of a tenant, not all are compiled before the line of
// another one, and each commit gets further. A package takes some 35 ms of the second that it
// may, so that one that is slow by chance is not left for Compile, which is no business of this test.
func TestQuickOfMany(t *testing.T) {
	t.Parallel()
	const n = 200
	more := map[string]string{}
	for i := range n {
		busy := "import \"list\"\n\n_busy: [for a in list.Range(0, 3000, 1) if a > 7 {a}]\n\njob"
		more[fmt.Sprintf("teams/a/p%d/p.cue", i)] = strings.Replace(sized("a", fmt.Sprintf("p%d", i), i), "job", busy, 1)
	}
	files := shared(more)
	c := compiler(t, compile.Config{Limits: compile.Limits{CPU: 20 * time.Second}})
	known := 0
	for whole := false; !whole; {
		files["teams/b/b.cue"] += "// a line\n"
		out, err := c.Quick(t.Context(), tree(files))
		if err != nil {
			t.Fatal(err)
		}
		all := !out.Partial
		dirs := taken(t, out)
		if len(dirs) <= known || all != (len(dirs) == n+1) || !slices.Contains(dirs, "teams/b") {
			t.Fatalf("%d packages after %d, whole: %v", len(dirs), known, all)
		}
		if known == 0 && all {
			t.Error("all are compiled at once")
		}
		known, whole = len(dirs), all
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
					if d.Rule != schema.RuleLimit || !strings.Contains(d.Message, `the packages of tenant "a" have more than`) {
						t.Errorf("%s: %v", p.Dir, d)
					}
				}
			}
			if ds := compile.Diagnostics(out); len(ds) != 1 || ds[0].Path != "teams/a/p4/p.cue" {
				t.Errorf("%d workers: want one diagnostic, at the first that is not taken: %v", workers, ds)
			}
			if diff := cmp.Diff([]string{"teams/a/p0", "teams/a/p1", "teams/a/p2", "teams/a/p3", "teams/b"}, taken); diff != "" {
				t.Errorf("%d workers: -want +got\n%s", workers, diff)
			}
		}
	}
}

// TestMuchWorkOfOne: what the evaluation of all packages of a tenant takes is bounded, though each takes
// what it may. The smallest of them are taken, with one mistake that says where the bound is; the
// package of another tenant is, too, and the outcome is the same with whatever is cached or kept.
func TestMuchWorkOfOne(t *testing.T) {
	t.Parallel()
	const n = 24
	more := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("p%02d", i)
		busy := fmt.Sprintf("import \"list\"\n\n_busy: [for a in list.Range(0, %d, 1) if a > 7 {a}]\n\njob", 20_000+i)
		more["teams/a/"+name+"/p.cue"] = strings.Replace(sized("a", name, i), "job", busy, 1)
	}
	files := tree(shared(more))
	for what, limits := range map[string]compile.Limits{
		"together allocate more than":                   {OwnerAllocs: 128 << 20},
		"together take more than 1ns of processor time": {OwnerCPU: 1}, // whatever the machine: all but the first
	} {
		cfg := compile.Config{Limits: limits, Store: &memory{data: map[string][]byte{}}, Workers: 1}
		c := compiler(t, cfg)
		var want []string
		for _, state := range []string{"cold", "warm", "kept"} {
			if state == "kept" {
				c = compiler(t, cfg)
			}
			out, err := c.Compile(t.Context(), files)
			if err != nil {
				t.Fatal(err)
			}
			got := taken(t, out)
			if want == nil {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s: -cold +now\n%s", what, state, diff)
			}
			if len(got) < 2 || len(got) > n || !slices.Contains(got, "teams/b") || !slices.Contains(got, "teams/a/p00") {
				t.Errorf("%s, %s: taken %v", what, state, got)
			}
			ds := compile.Diagnostics(out)
			if len(ds) != 1 || ds[0].Rule != schema.RuleLimit || !strings.Contains(ds[0].Message, `tenant "a" `+what) || ds[0].Path != fmt.Sprintf("teams/a/p%02d/p.cue", len(got)-1) {
				t.Errorf("%s, %s: want one diagnostic, at the first that is not taken: %v", what, state, ds)
			}
		}
	}
}

// TestDeathsOfOne: a package that exceeds a limit says no more what it took, and counts with what it may.
func TestDeathsOfOne(t *testing.T) {
	t.Parallel()
	more := map[string]string{"teams/a/p0/p.cue": endless}
	for i := 1; i < 4; i++ {
		name := fmt.Sprintf("p%d", i)
		more["teams/a/"+name+"/p.cue"] = sized("a", name, 1000+i)
	}
	limits := compile.Limits{CPU: 500 * time.Millisecond, OwnerCPU: 500 * time.Millisecond}
	c := compiler(t, compile.Config{Limits: limits, Workers: 1})
	for _, state := range []string{"cold", "warm"} {
		out, err := c.Compile(t.Context(), tree(shared(more)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"teams/b"}, taken(t, out)); diff != "" {
			t.Errorf("%s: taken -want +got\n%s", state, diff)
		}
		ds := compile.Diagnostics(out)
		if len(ds) != 2 || !strings.Contains(ds[1].Message, "together take more than 500ms of processor time") || ds[1].Path != "teams/a/p1/p.cue" {
			t.Errorf("%s: %v", state, ds)
		}
	}
}

// sized is a package of a job with so many bytes in it.
func sized(user, name string, bytes int) string {
	return fmt.Sprintf("package %s\n\njob: %s: {user: %q, cell: \"local\", task: {process: command: [\"x\"], env: X: %q}}\n",
		name, name, user, strings.Repeat("x", bytes))
}

// taken returns the directories of teams whose packages have data, and fails if one of the
// others does not say that a limit is exceeded.
func taken(t *testing.T, out schema.Compiled) (dirs []string) {
	t.Helper()
	for _, p := range out.Packages {
		switch {
		case p.Dir == "." || p.Dir == compile.SchemaDir:
		case p.Package != nil:
			dirs = append(dirs, p.Dir)
		case len(p.Diagnostics) != 1 || p.Diagnostics[0].Rule != schema.RuleLimit && p.Diagnostics[0].Rule != schema.RulePending:
			t.Errorf("%s: %v", p.Dir, p.Diagnostics)
		}
	}
	return dirs
}

// TestRetriedOfOne: three packages of a tenant took too long, so its larger one was not
// tried. In the next commit they are tried again, after the larger one, and do not.
func TestRetriedOfOne(t *testing.T) {
	t.Parallel()
	more := map[string]string{}
	for i := range 3 {
		more[fmt.Sprintf("teams/a/p%d/p.cue", i)] = sized("a", fmt.Sprintf("p%d", i), i) + "// too late\n"
	}
	more["teams/a/large/p.cue"] = sized("a", "large", 2000)
	busy := filepath.Join(t.TempDir(), "busy")
	if err := os.WriteFile(busy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := compile.New(compile.Config{Exe: self(t), Args: []string{lateArg, busy}, Workers: 1})
	for _, want := range [][]string{{"teams/b"}, {"teams/a/large", "teams/a/p0", "teams/a/p1", "teams/a/p2", "teams/b"}} {
		out, err := c.Compile(t.Context(), tree(shared(more)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, taken(t, out)); diff != "" {
			t.Errorf("-want +got\n%s\n%v", diff, compile.Diagnostics(out))
		}
		if err := os.RemoveAll(busy); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOwnerAndCommit: what is more than a tenant may have is refused for that, whatever
// the rest of the commit has, and does not count for the commit.
func TestOwnerAndCommit(t *testing.T) {
	t.Parallel()
	more := map[string]string{"teams/b/b.cue": sized("b", "b", 100)}
	for i := range 3 {
		more[fmt.Sprintf("teams/a/p%d/p.cue", i)] = sized("a", fmt.Sprintf("p%d", i), 6000+i)
	}
	for i := range 5 {
		more[fmt.Sprintf("teams/b/q%d/q.cue", i)] = sized("b", fmt.Sprintf("q%d", i), 1500+i)
	}
	for _, workers := range []int{1, 4} {
		c := compiler(t, compile.Config{Workers: workers, Limits: compile.Limits{OwnerBytes: 11_000, CommitBytes: 19_000}})
		for range 3 {
			out, err := c.Compile(t.Context(), tree(shared(more)))
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"teams/a/p0", "teams/b", "teams/b/q0", "teams/b/q1", "teams/b/q2", "teams/b/q3", "teams/b/q4"}
			if diff := cmp.Diff(want, taken(t, out)); diff != "" {
				t.Errorf("%d workers: -want +got\n%s", workers, diff)
			}
		}
	}
}

// TestCommitOfMany: where a commit has too much data, that is taken from who has the most
// of it; a tenant with one package, and be it the largest, keeps it.
func TestCommitOfMany(t *testing.T) {
	t.Parallel()
	files := shared(map[string]string{"teams/b/b.cue": sized("b", "b", 9000)})
	want := []string{"teams/b"}
	for _, other := range []string{"c", "d", "e"} {
		files["tenants.cue"] += fmt.Sprintf("tenant: %s: muster.#Tenant & {paths: [\"teams/%s\"], users: [%q]}\n", other, other, other)
		for i := range 3 {
			dir := fmt.Sprintf("teams/%s/p%d", other, i)
			files[dir+"/p.cue"] = sized(other, fmt.Sprintf("p%d", i), 6000+i)
			if i < 2 {
				want = append(want, dir)
			}
		}
	}
	for _, workers := range []int{1, 4} {
		c := compiler(t, compile.Config{Workers: workers, Limits: compile.Limits{OwnerBytes: 100_000, CommitBytes: 52_000}})
		for round := range 3 {
			out, err := c.Compile(t.Context(), tree(files))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, taken(t, out)); diff != "" {
				t.Errorf("%d workers, round %d: -want +got\n%s", workers, round, diff)
			}
			for _, p := range out.Packages {
				if p.Dir == "teams/c/p2" && !strings.Contains(p.Diagnostics[0].Message, `tenant "c" has the most of it`) {
					t.Errorf("not said whose: %v", p.Diagnostics)
				}
			}
		}
		// One tenant leaves: what was refused has room.
		fewer := maps.Clone(files)
		maps.DeleteFunc(fewer, func(name, _ string) bool { return strings.HasPrefix(name, "teams/c/") })
		out, err := c.Compile(t.Context(), tree(fewer))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"teams/b", "teams/d/p0", "teams/d/p1", "teams/d/p2", "teams/e/p0", "teams/e/p1", "teams/e/p2"}, taken(t, out)); diff != "" {
			t.Errorf("%d workers, fewer: -want +got\n%s", workers, diff)
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
