package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/model"
)

// when is the time of all commits here.
var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// gitEnv keeps the git program from the settings of whoever runs the tests.
func gitEnv() []string {
	return append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
}

// run runs the git program in dir and returns what it prints.
func run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Env = gitEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// commit commits files, given as path and content, with go-git.
func commit(t *testing.T, dir string, files ...string) string {
	t.Helper()
	c := git.Change{Message: "change", Files: map[string][]byte{}, Author: "a", Email: "a@example.com", When: when}
	for i := 0; i < len(files); i += 2 {
		c.Files[files[i]] = []byte(files[i+1])
	}
	hash, err := git.Commit(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// newRepo makes a repository with one commit on main.
func newRepo(t *testing.T) (dir, head string) {
	t.Helper()
	dir = t.TempDir()
	if err := git.Init(dir, "main"); err != nil {
		t.Fatal(err)
	}
	return dir, commit(t, dir, "a.cue", "package a\n")
}

func open(t *testing.T, cfg git.Config) *git.Repo {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	r, err := git.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return r
}

func wantHead(t *testing.T, r *git.Repo, want string) {
	t.Helper()
	got, err := r.Head(t.Context())
	if err != nil || got != want {
		t.Fatalf("Head: %s, %v; want %s", got, err, want)
	}
}

// wantError holds err against what it must say: one line with the problem and
// one with a hint.
func wantError(t *testing.T, err error, problem, hint string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %q", problem)
	}
	first, second, _ := strings.Cut(err.Error(), "\n")
	if !strings.Contains(first, problem) || !strings.HasPrefix(second, "hint: ") || !strings.Contains(second, hint) || strings.Contains(second, "\n") {
		t.Errorf("error\n%v\nwant %q and hint %q", err, problem, hint)
	}
}

// follow runs r and returns what it calls back with, when that is new.
func follow(t *testing.T, r *git.Repo) <-chan model.Seen {
	t.Helper()
	heads, done := make(chan model.Seen, 100), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		var last *model.Seen
		err := r.Run(ctx, func(s model.Seen) {
			if last == nil || s.Commit != last.Commit || fmt.Sprint(s.Trouble) != fmt.Sprint(last.Trouble) {
				heads <- s
			}
			last = &s
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	}()
	return heads
}

func next(t *testing.T, heads <-chan model.Seen) model.Seen {
	t.Helper()
	select {
	case h := <-heads:
		return h
	case <-time.After(20 * time.Second):
		t.Fatal("no change was seen")
	}
	panic("unreachable")
}

// kinds are all the forms in which a local repository may be given. Each
// returns the URL of one with the content of dir, on branch main.
var kinds = map[string]func(t *testing.T, dir string) string{
	"loose":    func(_ *testing.T, dir string) string { return dir },
	"file url": func(_ *testing.T, dir string) string { return "file://" + dir },
	"packed": func(t *testing.T, dir string) string {
		run(t, dir, "gc", "-q", "--aggressive")
		return dir
	},
	"bare": func(t *testing.T, dir string) string {
		bare := filepath.Join(t.TempDir(), "x.git")
		run(t, dir, "clone", "-q", "--bare", dir, bare)
		return bare
	},
	"linked work tree": func(t *testing.T, dir string) string {
		linked := filepath.Join(t.TempDir(), "linked")
		run(t, dir, "worktree", "add", "-q", "-b", "other", linked)
		return linked
	},
	"alternates": func(t *testing.T, dir string) string {
		shared := filepath.Join(t.TempDir(), "shared")
		run(t, dir, "clone", "-q", "--shared", dir, shared)
		return shared
	},
	"separate git dir": func(t *testing.T, dir string) string {
		clone := filepath.Join(t.TempDir(), "clone")
		run(t, dir, "clone", "-q", "--separate-git-dir", filepath.Join(t.TempDir(), "store"), dir, clone)
		return clone
	},
	"shallow": func(t *testing.T, dir string) string {
		clone := filepath.Join(t.TempDir(), "clone")
		run(t, dir, "clone", "-q", "--depth=1", "file://"+dir, clone)
		return clone
	},
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := newRepo(t)
			head := commit(t, dir, "teams/x/b.cue", "package b\n", "README", "no")
			r := open(t, git.Config{URL: kind(t, dir)})
			wantHead(t, r, head)
			tree, err := r.Tree(t.Context(), head)
			if err != nil {
				t.Fatal(err)
			}
			if tree.Commit != head || len(tree.Files) != 2 || string(tree.Files["teams/x/b.cue"].Data) != "package b\n" {
				t.Errorf("tree %+v", tree)
			}
		})
	}
}

// A local repository is read without the git program, and nothing in it is
// changed.
func TestReadsOnlyAndAlone(t *testing.T) {
	dir, head := newRepo(t)
	list := func() string {
		var b strings.Builder
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				fmt.Fprintln(&b, path, info.Mode(), info.Size(), info.ModTime())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	t.Setenv("PATH", "")
	before := list()
	for _, url := range []string{dir, "file://" + dir} {
		r := open(t, git.Config{URL: url, Branch: "main"})
		wantHead(t, r, head)
		if _, err := r.Tree(t.Context(), head); err != nil {
			t.Error(err)
		}
	}
	if after := list(); after != before {
		t.Errorf("the repository has changed:\n%s\nwas:\n%s", after, before)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	dir, first := newRepo(t)
	second := commit(t, dir, "b.cue", "package a\n")
	run(t, dir, "tag", "-a", "-m", "x", "v1", first)
	run(t, dir, "branch", "side", first)
	r := open(t, git.Config{URL: dir})
	for rev, want := range map[string]string{
		"HEAD": second, "main": second, "HEAD~1": first, "side": first, "v1": first, first: first, "main^": first,
	} {
		if got, err := r.Resolve(t.Context(), rev); err != nil || got != want {
			t.Errorf("Resolve(%s): %s, %v; want %s", rev, got, err, want)
		}
	}
	for _, rev := range []string{"nothing", strings.Repeat("1", 40), "HEAD~9", ""} {
		_, err := r.Resolve(t.Context(), rev)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("no commit is named %q", rev)) {
			t.Errorf("Resolve(%q): %v", rev, err)
		}
	}
	for rev, want := range map[string]string{
		"HEAD~9": "the history ends before it; its first commit is " + first, "v1^": "its first commit is " + first,
		"HEAD~1^^": "its first commit is " + first, "HEAD^2": "commit " + second + " has one parent", "HEAD~x": "",
	} {
		if _, err := r.Resolve(t.Context(), rev); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "EOF") {
			t.Errorf("Resolve(%s): %v, want %q", rev, err, want)
		}
	}
	shallow := filepath.Join(t.TempDir(), "clone")
	run(t, dir, "clone", "-q", "--depth=1", "file://"+dir, shallow)
	for _, rev := range []string{"HEAD~1", "HEAD^"} {
		_, err := open(t, git.Config{URL: shallow}).Resolve(t.Context(), rev)
		wantError(t, err, "the clone is shallow and ends before it, at commit "+second, "git log")
	}
	empty := t.TempDir()
	if err := git.Init(empty, "main"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, git.Config{URL: empty}).Resolve(t.Context(), "HEAD"); err == nil || !strings.Contains(err.Error(), "it has no commit yet") {
		t.Errorf("of a repository without a commit: %v", err)
	}
}

func TestWriter(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	if err := git.Init(dir, "main"); err == nil || !strings.Contains(err.Error(), "repository already") {
		t.Errorf("Init twice: %v", err)
	}
	if _, err := git.Commit(dir, git.Change{Message: "nothing", Author: "a", When: when}); err == nil || !strings.Contains(err.Error(), "nothing has changed") {
		t.Errorf("empty Commit: %v", err)
	}
	if _, err := git.Commit(dir, git.Change{Files: map[string][]byte{"../x": nil}}); err == nil || !strings.Contains(err.Error(), `"../x"`) {
		t.Errorf("Commit outside: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "by hand.cue"), []byte("package a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	commit(t, dir, "c/d.cue", "package d\n")
	if got := run(t, dir, "status", "--porcelain"); got != `?? "by hand.cue"` {
		t.Errorf("status %q", got)
	}
	change := git.Change{Message: "all\n\nTrailer: x", Files: map[string][]byte{"c/d.cue": nil}, All: true, Author: "b", Email: "b@example.com", When: when}
	hash, err := git.Commit(dir, change)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, dir, "ls-tree", "-r", "--name-only", hash); got != "a.cue\nby hand.cue" {
		t.Errorf("tree %q", got)
	}
	if got := run(t, dir, "log", "-1", "--format=%an %ae %cn %aI %s", "main"); got != "b b@example.com b 2026-01-02T03:04:05+00:00 all" {
		t.Errorf("commit %q", got)
	}
	run(t, dir, "fsck", "--strict")
}
