package e2e_test

import (
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// TestWorkTreeIsCommit compiles a work tree and its commit, with links of every
// kind, a submodule and names that are not text: files, diagnostics and data are
// the same.
func TestWorkTreeIsCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(at string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = at
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const job = "package p\n\njob: web: {user: \"a\", cell: \"local\", task: process: command: [\"x\"]}\n"
	run(dir, "init", "-q", "-b", "main")
	write("cue.mod/module.cue", "module: \"example.com/config@v0\"\nlanguage: version: \"v0.17.0\"\n")
	write("good/p.cue", job)
	write("good/data.json", "{}")
	write("embeds/p.cue", "@extern(embed)\n\npackage p\n\n_x: _ @embed(file=link.json)\n")
	write(".hidden/p.cue", job)
	write("caf\xe9/p.cue", job)
	write("good/\xff.cue", "package p\n")
	for name, target := range map[string]string{
		"links/file.cue": "../good/p.cue", "links/dir": "../good", "links/dangling.cue": "nowhere.cue", "links/loop.cue": "loop.cue",
		"links/outside.cue": "/etc/passwd", "links/up": "../..", "embeds/link.json": "../good/data.json", "cue.mod/pkg": "../good",
	} {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, p); err != nil {
			t.Fatal(err)
		}
	}
	write("sub/p.cue", job)
	run(filepath.Join(dir, "sub"), "init", "-q", "-b", "main")
	run(filepath.Join(dir, "sub"), "add", ".")
	run(filepath.Join(dir, "sub"), "commit", "-q", "-m", "sub")
	run(dir, "add", ".")
	run(dir, "commit", "-q", "-m", "all")

	repo, err := git.Open(t.Context(), git.Config{URL: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	committed, err := repo.Tree(t.Context(), run(dir, "rev-parse", "HEAD"))
	if err != nil {
		t.Fatal(err)
	}
	worktree, err := compile.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := func(tree schema.Tree) map[string]string {
		out := map[string]string{}
		for name, f := range maps.All(tree.Files) {
			out[name] = string(f.Data)
		}
		return out
	}
	if diff := cmp.Diff(text(committed), text(worktree)); diff != "" {
		t.Errorf("files: (-commit +work tree)\n%s", diff)
	}
	var both []schema.Compiled
	for _, tree := range []schema.Tree{committed, worktree} {
		tree.Commit, tree.By = "", schema.Authorship{} // which a work tree has not
		c := compile.New(compile.Config{Exe: filepath.Join(binaries.Dir(t), "muster"), Args: []string{"compile-child"}})
		out, err := c.Compile(t.Context(), tree)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, out)
	}
	if diff := cmp.Diff(both[0], both[1]); diff != "" {
		t.Errorf("(-commit +work tree)\n%s", diff)
	}
	var said []string
	for _, d := range compile.Diagnostics(both[0]) {
		said = append(said, d.Error())
	}
	want := []string{
		"caf\uFFFD:1:1: a name that is not UTF-8: not followed",
		"cue.mod/pkg:1:1: a symbolic link: not followed",
		"embeds/link.json:1:1: a symbolic link: not followed",
		"embeds/p.cue:5:7: embeds link.json, which is not there, or has more than 1 MiB",
		"good/\uFFFD.cue:1:1: a name that is not UTF-8: not followed",
		"links/dangling.cue:1:1: a symbolic link: not followed",
		"links/dir:1:1: a symbolic link: not followed",
		"links/file.cue:1:1: a symbolic link: not followed",
		"links/loop.cue:1:1: a symbolic link: not followed",
		"links/outside.cue:1:1: a symbolic link: not followed",
		"links/up:1:1: a symbolic link: not followed",
		"sub:1:1: a submodule: not followed",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("diagnostics: (-want +got)\n%s", diff)
	}
}
