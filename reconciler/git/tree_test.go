package git_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema"
)

func tree(t *testing.T, r *git.Repo, commit string) schema.Tree {
	t.Helper()
	tree, err := r.Tree(t.Context(), commit)
	if err != nil {
		t.Fatalf("Tree: %v", err)
	}
	return tree
}

func paths(tree schema.Tree) []string { return slices.Sorted(maps.Keys(tree.Files)) }

func TestTreeHoldsWhatMatters(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	files := []string{
		"cue.mod/module.cue", "module: \"x.example\"\n", "cue.mod/other.txt", "x", "cue.mod/pkg/y/z.cue", "package z\n",
		"README.md", "no", "teams/x/b.cue", "package x\n", "teams/x/data.json", "{}", "teams/x/empty.txt", "",
		".github/workflows/ci.cue", "package ci\n", "teams/.hidden/c.cue", "package c\n", "cue", "no", "x.cue.orig", "no",
		"docs/deep/er/large.txt", strings.Repeat("x", 1<<20+1), "docs/deep/er/limit.txt", strings.Repeat("x", 1<<20),
	}
	head := commit(t, dir, files...)
	r := open(t, git.Config{URL: dir})
	always := []string{"a.cue", "cue.mod/module.cue", "cue.mod/other.txt", "cue.mod/pkg/y/z.cue", "teams/x/b.cue"}
	got := tree(t, r, head)
	if diff := cmp.Diff(always, paths(got)); diff != "" {
		t.Errorf("files: (-want +got)\n%s", diff)
	}
	if len(got.Diagnostics) != 0 {
		t.Errorf("diagnostics %v", got.Diagnostics)
	}
	head = commit(t, dir, "teams/e.cue", "@extern(embed)\npackage e\nx: _ @embed(file=x/data.json)\n")
	got = tree(t, r, head)
	want := append(slices.Clone(always), "README.md", "cue", "docs/deep/er/limit.txt", "teams/e.cue", "teams/x/data.json", "teams/x/empty.txt", "x.cue.orig")
	slices.Sort(want)
	if diff := cmp.Diff(want, paths(got)); diff != "" {
		t.Errorf("files with @embed: (-want +got)\n%s", diff)
	}
	for path, file := range got.Files {
		if want := run(t, dir, "rev-parse", head+":"+path); file.Hash != want {
			t.Errorf("%s: hash %s, git says %s", path, file.Hash, want)
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || !bytes.Equal(data, file.Data) {
			t.Errorf("%s: %d bytes, want %d (%v)", path, len(file.Data), len(data), err)
		}
	}
}

func TestTreeReportsWhatIsNotFollowed(t *testing.T) {
	t.Parallel()
	dir, first := newRepo(t)
	if err := os.MkdirAll(filepath.Join(dir, "teams"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"teams/l.cue": "../a.cue", "out": "/etc"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "add", "-A")
	run(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+first+",vendor/sub")
	run(t, dir, "commit", "-q", "-m", "links")
	head := run(t, dir, "rev-parse", "HEAD")
	got := tree(t, open(t, git.Config{URL: dir}), head)
	if diff := cmp.Diff([]string{"a.cue"}, paths(got)); diff != "" {
		t.Errorf("files: (-want +got)\n%s", diff)
	}
	var said []string
	for _, d := range got.Diagnostics {
		if d.Severity != schema.Warning || d.Hint == "" {
			t.Errorf("diagnostic %+v", d)
		}
		said = append(said, d.Error())
	}
	want := []string{"out:1:1: a symbolic link: not followed", "teams/l.cue:1:1: a symbolic link: not followed", "vendor/sub:1:1: a submodule: not followed"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("warnings: (-want +got)\n%s", diff)
	}
	for i := range 30 {
		if err := os.Symlink("x", filepath.Join(dir, fmt.Sprint("l", i))); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "add", "-A")
	run(t, dir, "commit", "-q", "-m", "many")
	got = tree(t, open(t, git.Config{URL: dir}), run(t, dir, "rev-parse", "HEAD"))
	if n := len(got.Diagnostics); n != 21 || got.Diagnostics[20].Message != "a symbolic link, and 11 more entries that are not followed" {
		t.Errorf("%d warnings, the last %+v", n, got.Diagnostics[n-1])
	}
}

// What did not change is neither read nor copied again.
func TestTreeSharesWhatIsUnchanged(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	first := commit(t, dir, "x/b.cue", "package x\n", "y/c.cue", "package y\n")
	r := open(t, git.Config{URL: dir})
	one := tree(t, r, first)
	second := commit(t, dir, "y/c.cue", "package y // changed\n")
	empty, err := git.Commit(dir, git.Change{Message: "m", Files: map[string][]byte{"README": []byte("x")}, Author: "a", When: when})
	if err != nil {
		t.Fatal(err)
	}
	two, three := tree(t, r, second), tree(t, r, empty)
	if by := three.By; by.Author != "a" || by.Subject != "m" || !by.At.Equal(when) || two.By == by {
		t.Errorf("the commits are by %+v and %+v", two.By, by)
	}
	same := func(a, b schema.File) bool { return &a.Data[0] == &b.Data[0] }
	if !same(one.Files["x/b.cue"], two.Files["x/b.cue"]) || !same(two.Files["y/c.cue"], three.Files["y/c.cue"]) {
		t.Error("an unchanged file was read again")
	}
	if same(one.Files["y/c.cue"], two.Files["y/c.cue"]) || two.Files["y/c.cue"].Hash == one.Files["y/c.cue"].Hash {
		t.Error("a changed file was not")
	}
	// The objects can go: what is cached is not looked up.
	if err := os.RemoveAll(filepath.Join(dir, ".git", "objects", one.Files["x/b.cue"].Hash[:2])); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		tree(t, r, second)
	}
}

// bomb makes a tree of levels × width entries, each level of which names the
// one below width times.
func bomb(t *testing.T, levels, width int, leaf string) (dir, head string) {
	t.Helper()
	dir, _ = newRepo(t)
	blob := run(t, dir, "rev-parse", "HEAD:a.cue")
	mktree := func(lines string) string {
		cmd := exec.Command("git", "-C", dir, "mktree")
		cmd.Env, cmd.Stdin = gitEnv(), strings.NewReader(lines)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("mktree: %v", err)
		}
		return strings.TrimSpace(string(out))
	}
	at := mktree(strings.ReplaceAll(leaf, "BLOB", blob))
	for range levels {
		var lines strings.Builder
		for i := range width {
			fmt.Fprintf(&lines, "040000 tree %s\td%02d\n", at, i)
		}
		at = mktree(lines.String())
	}
	return dir, run(t, dir, "commit-tree", "-m", "bomb", at)
}

// Trees that are small in the store and huge when unfolded are refused, or
// cost nothing where nothing in them matters.
func TestTreeLimits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		levels, width int
		leaf, want    string
	}{
		{"files", 10, 10, "100644 blob BLOB\ta.cue\n", "more than 250000 configuration files"},
		{"links", 10, 10, "120000 blob BLOB\tl\n", "more than 250000 configuration files"},
		{"other files", 10, 10, "100644 blob BLOB\tREADME\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, head := bomb(t, tt.levels, tt.width, tt.leaf)
			r := open(t, git.Config{URL: dir})
			got, err := r.Tree(t.Context(), head)
			if tt.want == "" && (err != nil || len(got.Files) != 0) {
				t.Errorf("%d files, %v", len(got.Files), err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// What is too much in one directory is left out with an error, and the rest of
// the commit is read.
func TestTreeRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("d/", 70)
	dir, _ := newRepo(t)
	first := commit(t, dir, "big/b.cue", strings.Repeat("/", 16<<20+1), "big/c.cue", "package big\n", deep+"e.cue", "package e\n")
	blob := run(t, dir, "rev-parse", "HEAD:a.cue")
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, "100644 blob %s\tf%d.cue\n", blob, i)
	}
	cmd := exec.Command("git", "-C", dir, "mktree")
	cmd.Env, cmd.Stdin = gitEnv(), strings.NewReader(many.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "read-tree", "--prefix=many/", strings.TrimSpace(string(out)))
	root := run(t, dir, "write-tree")
	head := run(t, dir, "commit-tree", "-p", first, "-m", "many", root)
	r := open(t, git.Config{URL: dir})
	for range 2 {
		got := tree(t, r, head)
		if diff := cmp.Diff([]string{"a.cue", "big/c.cue"}, paths(got)); diff != "" {
			t.Errorf("files: (-want +got)\n%s", diff)
		}
		var said []string
		for _, d := range got.Diagnostics {
			if d.Severity != schema.Error || d.Hint == "" {
				t.Errorf("diagnostic %+v", d)
			}
			said = append(said, d.Error())
		}
		want := []string{
			"big/b.cue:1:1: the file has more than 16 MiB",
			strings.Repeat("d/", 65) + "…:1:1: directories nest deeper than 64",
			"many/f0.cue:1:1: the directory has 100000 CUE files, more than 20000",
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("errors: (-want +got)\n%s", diff)
		}
	}
}

// A Repo may be used from several goroutines.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	dir, first := newRepo(t)
	r := open(t, git.Config{URL: dir, Branch: "main"})
	heads := follow(t, r)
	next(t, heads)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if _, err := r.Tree(t.Context(), first); err != nil {
					t.Error(err)
				}
				if _, err := r.Head(t.Context()); err != nil {
					t.Error(err)
				}
				if _, err := r.Resolve(t.Context(), "HEAD"); err != nil {
					t.Error(err)
				}
				r.Poke()
			}
		})
	}
	want := ""
	for i := range 5 {
		want = commit(t, dir, "a.cue", fmt.Sprintf("package a // %d\n", i))
	}
	wg.Wait()
	wantHead(t, r, want)
}
