package git_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/git"
)

// With an hour between polls, every way in which a head moves is seen.
func TestChangesAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		branch string
		url    func(t *testing.T, dir string) string
		change func(t *testing.T, dir, url string) (head string)
	}{
		"go-git commits": {"main", kinds["loose"], func(t *testing.T, dir, _ string) string {
			return commit(t, dir, "b.cue", "package a\n")
		}},
		"git commits": {"main", kinds["loose"], func(t *testing.T, dir, _ string) string {
			run(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
			return run(t, dir, "rev-parse", "HEAD")
		}},
		"git commits to a packed branch": {"main", kinds["packed"], func(t *testing.T, dir, _ string) string {
			run(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
			return run(t, dir, "rev-parse", "HEAD")
		}},
		"a push to a bare repository": {"main", kinds["bare"], func(t *testing.T, dir, bare string) string {
			run(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
			run(t, dir, "push", "-q", bare, "main")
			return run(t, dir, "rev-parse", "HEAD")
		}},
		"a commit in a linked work tree": {"", kinds["linked work tree"], func(t *testing.T, _, linked string) string {
			run(t, linked, "commit", "-q", "--allow-empty", "-m", "x")
			return run(t, linked, "rev-parse", "HEAD")
		}},
		"another branch is checked out": {"", kinds["loose"], func(t *testing.T, dir, _ string) string {
			run(t, dir, "checkout", "-q", "-b", "side/branch")
			run(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
			return run(t, dir, "rev-parse", "HEAD")
		}},
		"a detached head": {"", kinds["loose"], func(t *testing.T, dir, _ string) string {
			head := run(t, dir, "commit-tree", "-m", "x", "HEAD^{tree}")
			run(t, dir, "checkout", "-q", head)
			return head
		}},
		"a branch in a directory that comes and goes": {"a/b/c", func(t *testing.T, dir string) string {
			run(t, dir, "branch", "a/b/c")
			run(t, dir, "pack-refs", "--all")
			return dir
		}, func(t *testing.T, dir, _ string) string {
			head := run(t, dir, "commit-tree", "-m", "x", "HEAD^{tree}")
			run(t, dir, "update-ref", "refs/heads/a/b/c", head)
			return head
		}},
		"only packed-refs changes": {"side", func(t *testing.T, dir string) string {
			run(t, dir, "branch", "side")
			run(t, dir, "pack-refs", "--all")
			return dir
		}, func(t *testing.T, dir, _ string) string {
			head := run(t, dir, "commit-tree", "-m", "x", "HEAD^{tree}")
			path := filepath.Join(dir, ".git", "packed-refs")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			old := run(t, dir, "rev-parse", "side")
			data = []byte(strings.Replace(string(data), old+" refs/heads/side", head+" refs/heads/side", 1))
			if err := os.WriteFile(path+".new", data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
			return head
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, first := newRepo(t)
			url := tt.url(t, dir)
			r := open(t, git.Config{URL: url, Branch: tt.branch, Poll: time.Hour})
			heads := follow(t, r)
			if h := next(t, heads); h.Commit != first || h.Trouble != nil {
				t.Fatalf("first %+v, want %s", h, first)
			}
			want := tt.change(t, dir, url)
			for {
				h := next(t, heads)
				if h.Trouble != nil {
					t.Fatalf("trouble on the way: %v", h.Trouble)
				}
				if h.Commit == want {
					break
				}
			}
			if _, err := r.Tree(t.Context(), want); err != nil {
				t.Errorf("Tree: %v", err)
			}
		})
	}
}

// New packs, and objects that moved into them, are found by a Repo that was
// opened before.
func TestRepackedUnderneath(t *testing.T) {
	t.Parallel()
	dir, first := newRepo(t)
	r := open(t, git.Config{URL: dir})
	wantHead(t, r, first)
	for i := range 3 {
		head := commit(t, dir, "a.cue", strings.Repeat("\n", i+1)+"package a\n")
		run(t, dir, "gc", "-q", "--prune=now")
		wantHead(t, r, head)
		for _, c := range []string{first, head} {
			if _, err := r.Tree(t.Context(), c); err != nil {
				t.Errorf("Tree: %v", err)
			}
		}
	}
}

// Trouble is reported once and does not lose the last head; its end is
// reported too. Poke has it seen now.
func TestTrouble(t *testing.T) {
	t.Parallel()
	dir, first := newRepo(t)
	r := open(t, git.Config{URL: dir, Branch: "main", Poll: time.Hour})
	heads := follow(t, r)
	if h := next(t, heads); h.Commit != first || h.Trouble != nil {
		t.Fatalf("%+v", h)
	}
	away := dir + "-away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.Poke()
	}
	h := next(t, heads)
	wantError(t, h.Trouble, "no such file or directory", "name the directory of a git repository")
	if h.Commit != first {
		t.Errorf("the last good head is lost: %+v", h)
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	r.Poke()
	if h := next(t, heads); h.Commit != first || h.Trouble != nil {
		t.Fatalf("%+v", h)
	}
	second := commit(t, dir, "b.cue", "package a\n")
	if h := next(t, heads); h.Commit != second || h.Trouble != nil {
		t.Fatalf("%+v", h)
	}
	run(t, dir, "branch", "-m", "main", "gone")
	h = next(t, heads)
	if h.Trouble != nil && strings.Contains(h.Trouble.Error(), "ref file is empty") {
		h = next(t, heads) // git was seen while it wrote the new name
	}
	wantError(t, h.Trouble, `has no branch "main"`, "its branches: gone")
	if h.Commit != second {
		t.Errorf("the last good head is lost: %+v", h)
	}
	select {
	case h := <-heads:
		t.Errorf("reported again: %+v", h)
	default:
	}
}

// The first commit of an empty repository is seen.
func TestFirstCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := git.Init(dir, "trunk"); err != nil {
		t.Fatal(err)
	}
	heads := follow(t, open(t, git.Config{URL: dir, Poll: time.Hour}))
	wantError(t, next(t, heads).Trouble, "is empty: it has no commit", `commit to branch "trunk"`)
	want := commit(t, dir, "a.cue", "package a\n")
	if h := next(t, heads); h.Commit != want || h.Trouble != nil {
		t.Errorf("%+v, want %s", h, want)
	}
}
