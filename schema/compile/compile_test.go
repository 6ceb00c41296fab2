package compile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/compile/synthetic"
	"github.com/musterhq/muster/schema/turns"
)

// mixed is a repository with good and bad packages.
func mixed() map[string]string {
	files := synthetic.Files(6, 10)
	files["teams/bad/a.cue"] = "package bad\n\njob: web: tsks: 3\n"
	files["teams/t1/sub/a.cue"] = "package t1\n\njob: other: {user: \"team-1\", cell: \"local\", task: process: command: [\"x\"]}\n"
	return files
}

// corpus is one repository of all goldens whose turn it is, good and bad, each in a directory
// of its own but for those that are about the repository as a whole. mistakes is how many
// of them are bad.
func corpus(t *testing.T) (files map[string]string, mistakes int) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(paths) < 50 {
		t.Fatalf("%d goldens: %v", len(paths), err)
	}
	files = mixed()
	for i, p := range paths {
		if !turns.Takes(i) {
			continue
		}
		if strings.HasPrefix(p, "testdata/bad/") {
			mistakes++
		}
		ar, err := txtar.ParseFile(p)
		if err != nil {
			t.Fatal(err)
		}
		top := strings.TrimSuffix(filepath.Base(p), ".txtar")
		for _, f := range ar.Files {
			if f.Name == "want" || f.Name == "data" || strings.HasPrefix(f.Name, "cue.mod/") || strings.HasPrefix(f.Name, compile.SchemaDir+"/") {
				continue
			}
			// What the files import of each other moves with them.
			text := strings.ReplaceAll(string(f.Data), "\"example.com/config/", "\"example.com/config/"+top+"/")
			text = strings.ReplaceAll(text, "/"+top+"/muster\"", "/muster\"")
			files[top+"/"+f.Name] = text
		}
	}
	for name, s := range map[string]string{"slow": endless, "deep": nested()["deep"]["p.cue"], "syntax": erroneous()["errors-syntax"]["p.cue"]} {
		files["hostile/"+name+"/p.cue"] = s
	}
	return files, mistakes
}

// TestSameBytes compiles one commit with 1 and 4 workers, cold and warm, after
// another commit, and from a second checkout on the disk: the outcome must not
// differ by a byte.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	files, mistakes := corpus(t)
	whole := tree(files)
	checkout := t.TempDir()
	for name, f := range whole.Files {
		p := filepath.Join(checkout, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	limits := compile.Limits{CPU: 500 * time.Millisecond, Wall: 5 * time.Minute} // not the clock, on a busy machine
	var want []byte
	check := func(what string, c *compile.Compiler, tr schema.Tree) {
		t.Helper()
		out, err := c.Compile(t.Context(), tr)
		if err != nil {
			t.Fatal(err)
		}
		out.Commit = ""
		got := schema.Canonical(out)
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	for _, workers := range []int{1, 4} {
		c := compiler(t, compile.Config{Workers: workers, Limits: limits})
		check(fmt.Sprintf("%d workers, cold", workers), c, whole)
		check(fmt.Sprintf("%d workers, warm", workers), c, whole)
		less := maps.Clone(files)
		maps.DeleteFunc(less, func(name, _ string) bool { return len(name)%2 == 0 })
		if _, err := c.Compile(t.Context(), tree(less)); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("%d workers, after another commit", workers), c, whole)
	}
	second, err := compile.ReadDir(checkout)
	if err != nil {
		t.Fatal(err)
	}
	check("another checkout", compiler(t, compile.Config{Limits: limits}), second)
	if n := bytes.Count(want, []byte(`"Severity":"error"`)) + bytes.Count(want, []byte(`"severity":"error"`)); n < mistakes {
		t.Errorf("only %d errors, of %d goldens with a mistake", n, mistakes)
	}
}

// TestCache checks what a change makes evaluate again: the digests of all else
// stay, and with a child that cannot start only what is known compiles.
func TestCache(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"base.cue":       "package team\n\n_n: 1\n",
		"lib/lib.cue":    "package lib\n\n#N: 2\n",
		"teams/a/a.cue":  "package team\n\njob: a: {user: \"a\", cell: \"local\", tasks: _n, task: process: command: [\"x\"]}\n",
		"teams/b/b.cue":  "package b\n\nimport \"example.com/config/lib\"\n\njob: b: {user: \"a\", cell: \"local\", tasks: lib.#N, task: process: command: [\"x\"]}\n",
		"teams/c/c.cue":  "@extern(embed)\n\npackage c\n\n_d: _ @embed(file=d.json)\njob: c: {user: \"a\", cell: \"local\", tasks: _d.n, task: process: command: [\"x\"]}\n",
		"teams/c/d.json": `{"n": 3}`,
		"README.md":      "hello",
	}
	tasks := func(c schema.Compiled) map[string]int {
		m := map[string]int{}
		for _, j := range compile.Merge(c).Jobs {
			m[j.Name] = j.Tasks
		}
		return m
	}
	c := compiler(t, compile.Config{})
	want := map[string]int{"a": 1, "b": 2, "c": 3}
	for _, step := range []struct{ name, content, job string }{
		{"README.md", "other", ""},
		{"base.cue", "package team\n\n_n: 11\n", "a"},
		{"lib/lib.cue", "package lib\n\n#N: 12\n", "b"},
		{"teams/c/d.json", `{"n": 13}`, "c"},
	} {
		files[step.name] = step.content
		if step.job != "" {
			want[step.job] += 10
		}
		out, err := c.Compile(t.Context(), tree(files))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, tasks(out)); diff != "" {
			t.Errorf("after %s: -want +got\n%s", step.name, diff)
		}
	}
}

// TestNotAModule checks the diagnostics of a repository as a whole.
func TestNotAModule(t *testing.T) {
	t.Parallel()
	c := compiler(t, compile.Config{})
	for name, files := range map[string]map[string]schema.File{
		"empty":  {},
		"readme": {"README.md": {Hash: "1", Data: []byte("hello")}},
		"cue":    {"a.cue": {Hash: "2", Data: []byte("package a\n")}},
	} {
		out, err := c.Compile(t.Context(), schema.Tree{Files: files})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Packages) > 0 || len(out.Diagnostics) != 1 || !strings.Contains(out.Diagnostics[0].Hint, "muster init") {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// TestOurTrouble checks that trouble of ours is an error, not a diagnostic.
func TestOurTrouble(t *testing.T) {
	t.Parallel()
	good := tree(map[string]string{"a/a.cue": "package a\n"})
	for name, cfg := range map[string]compile.Config{
		"no program":    {Exe: "/nonexistent/muster"},
		"other program": {Exe: "/bin/echo", Args: []string{"hello"}},
		"silent":        {Exe: "/bin/true"},
	} {
		if _, err := compile.New(cfg).Compile(t.Context(), good); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestCancel cancels a compilation that would run for long: the children are
// gone when Compile returns.
func TestCancel(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 4 {
		files[fmt.Sprintf("p%d/p.cue", i)] = endless
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := compiler(t, compile.Config{}).Compile(ctx, tree(files))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestReadDir compares a work tree with the tree that it was written from.
func TestReadDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, s string) {
		t.Helper()
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names := func() []string {
		tr, err := compile.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range tr.Files {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(b, f.Data) || f.Hash == "" {
				t.Errorf("%s: %v", name, err)
			}
		}
		return slices.Sorted(maps.Keys(tr.Files))
	}
	write("cue.mod/module.cue", module)
	write("a/a.cue", "package a\n")
	write("a/big.json", "{}")
	write(".git/x.cue", "package git\n")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "a", "link.cue")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a/a.cue", "cue.mod/module.cue"}, names()); diff != "" {
		t.Error(diff)
	}
	write("a/b.cue", "@extern(embed)\n\npackage a\n\n_x: _ @embed(file=big.json)\n")
	if diff := cmp.Diff([]string{"a/a.cue", "a/b.cue", "a/big.json", "cue.mod/module.cue"}, names()); diff != "" {
		t.Error(diff)
	}
	if _, err := compile.ReadDir(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a directory that does not exist is read")
	}
}
