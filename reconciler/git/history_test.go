package git_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/loop"
)

var _ loop.Source = (*git.Repo)(nil)

// A head that does not descend from the one before is followed, and reported to be
// one: of a remote too, of which only heads are fetched.
func TestRewrittenHistory(t *testing.T) {
	t.Parallel()
	amend := func(t *testing.T, dir string) {
		t.Helper()
		run(t, dir, "commit", "-q", "--amend", "--allow-empty", "-m", "amended")
	}
	more := func(t *testing.T, dir string) {
		t.Helper()
		commit(t, dir, fmt.Sprintf("%x.cue", time.Now().UnixNano()), "package a\n")
	}
	steps := []struct {
		name      string
		move      func(t *testing.T, dir string)
		rewritten bool
	}{
		{"one commit", more, false},
		{"three commits at once", func(t *testing.T, dir string) { more(t, dir); more(t, dir); more(t, dir) }, false},
		{"amended", amend, true},
		{"backwards", func(t *testing.T, dir string) { run(t, dir, "reset", "-q", "--hard", "HEAD~2") }, true},
		{"forwards again", func(t *testing.T, dir string) { more(t, dir); more(t, dir) }, false},
		{"a merge", func(t *testing.T, dir string) {
			run(t, dir, "checkout", "-q", "-b", "side", "HEAD~1")
			run(t, dir, "commit", "-q", "--allow-empty", "-m", "side")
			run(t, dir, "merge", "-q", "--no-ff", "-m", "merge", "main")
			run(t, dir, "branch", "-f", "main")
			run(t, dir, "checkout", "-q", "main")
			more(t, dir)
		}, false},
		{"another root", func(t *testing.T, dir string) {
			run(t, dir, "checkout", "-q", "--orphan", "fresh")
			run(t, dir, "commit", "-q", "-m", "root")
			run(t, dir, "branch", "-f", "main")
			run(t, dir, "checkout", "-q", "main")
		}, true},
	}
	sources := map[string]func(t *testing.T, dir string) (url string, publish func()){
		"local": func(_ *testing.T, dir string) (string, func()) { return dir, func() {} },
		"remote": func(t *testing.T, dir string) (string, func()) {
			t.Helper()
			return far(t, dir, "false", func(string) {})
		},
		"remote that filters": func(t *testing.T, dir string) (string, func()) {
			t.Helper()
			return far(t, dir, "true", func(string) {})
		},
		"remote that forgets at once": func(t *testing.T, dir string) (string, func()) {
			t.Helper()
			return far(t, dir, "true", func(bare string) {
				run(t, bare, "reflog", "expire", "--expire=now", "--all")
				run(t, bare, "gc", "-q", "--prune=now")
			})
		},
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, head := newRepo(t)
			url, publish := source(t, dir)
			store := t.TempDir()
			r := open(t, git.Config{URL: url, Branch: "main", Dir: store, Poll: time.Hour})
			seen := follow(t, r)
			if s := next(t, seen); s.Commit != head || s.Rewritten != "" {
				t.Fatalf("at first: %+v", s)
			}
			for _, step := range steps {
				before := head
				// So that a local repository is seen when all is done.
				if url == dir {
					run(t, dir, "checkout", "-q", "-B", "work", "main")
					clone := filepath.Join(t.TempDir(), "clone")
					run(t, ".", "clone", "-q", dir, clone)
					run(t, clone, "checkout", "-q", "main")
					step.move(t, clone)
					run(t, clone, "push", "-q", "-f", "origin", "main")
				} else {
					step.move(t, dir)
				}
				publish()
				head = run(t, dir, "rev-parse", "main")
				r.Poke()
				s := next(t, seen)
				want := ""
				if step.rewritten {
					want = before
				}
				if s.Commit != head || s.Trouble != nil || s.Rewritten != want {
					t.Errorf("%s: %+v, want commit %s, rewritten %q", step.name, s, head, want)
				}
				if _, err := r.Tree(t.Context(), head); err != nil {
					t.Errorf("%s: %v", step.name, err)
				}
			}
		})
	}
}

// The trailers of all commits since the one applied add up, those of merged
// branches among them, and no older ones.
func TestTrailers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"local", "remote", "remote that filters"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, _ := newRepo(t)
			allow := func(n int) string {
				run(t, dir, "commit", "-q", "--allow-empty", "-m", fmt.Sprintf("x\n\nMuster-Allow-Prune: %d", n))
				return run(t, dir, "rev-parse", "HEAD")
			}
			old := allow(1)
			applied := allow(2)
			one := allow(4)
			run(t, dir, "checkout", "-q", "-b", "side", old) // forked before what is applied
			allow(8)
			run(t, dir, "checkout", "-q", "main")
			two := allow(16)
			run(t, dir, "merge", "-q", "--no-ff", "-m", "merge\n\nMuster-Allow-Prune: 32", "side")
			merged := run(t, dir, "rev-parse", "HEAD")
			run(t, dir, "checkout", "-q", "--orphan", "fresh")
			root := allow(64)
			tests := []struct {
				name, applied, commit string
				want, others          int
				alone                 bool
			}{
				{"the same", two, two, 0, 0, false},
				{"the next", applied, one, 4, 0, false},
				{"two further", applied, two, 4 + 16, 1, false},
				{"a merge", two, merged, 8 + 32, 1, false},
				{"all", applied, merged, 4 + 8 + 16 + 32, 3, false},
				{"nothing is applied", "", merged, 32, 0, true},
				{"another history", merged, root, 64, 0, true},
				{"backwards", two, one, 4, 0, true},
				{"what is applied is gone", strings.Repeat("1", 40), two, 16, 0, true},
			}
			url, publish := dir, func() {}
			if kind != "local" {
				url, publish = far(t, dir, strconv.FormatBool(kind != "remote"), func(string) {})
			}
			for _, tt := range tests {
				run(t, dir, "branch", "-f", "main", tt.commit) // a remote's head is all that is fetched
				publish()
				r := open(t, git.Config{URL: url, Branch: "main", Dir: t.TempDir()})
				wantHead(t, r, tt.commit)
				got, err := r.Trailers(t.Context(), tt.applied, tt.commit)
				if err != nil || got.AllowPrune != tt.want || got.Others != tt.others || got.Alone != tt.alone {
					t.Errorf("%s: allowed %d by %d commits and one, alone %t, %v; want %d, %d, %t", tt.name, got.AllowPrune, got.Others, got.Alone, err, tt.want, tt.others, tt.alone)
				}
			}
			if _, err := open(t, git.Config{URL: dir}).Trailers(t.Context(), "", strings.Repeat("1", 40)); err == nil {
				t.Error("a commit that is not there: no error")
			}
		})
	}
}

// far is a remote of the repository at dir, to which publish pushes.
func far(t *testing.T, dir, filter string, after func(bare string)) (url string, publish func()) {
	t.Helper()
	bare := kinds["bare"](t, dir)
	run(t, bare, "config", "uploadpack.allowFilter", filter)
	run(t, dir, "remote", "add", "origin", bare)
	return serve(t, bare, "").URL + "/x.git", func() {
		run(t, dir, "push", "-q", "-f", "origin", "main")
		after(bare)
	}
}

// A branch that goes leaves its last commit in force, and comes back.
func TestRemoteBranchVanishes(t *testing.T) {
	t.Parallel()
	dir, head, _, url := hosted(t, "")
	r := open(t, git.Config{URL: url, Branch: "main", Dir: t.TempDir(), Poll: time.Hour})
	seen := follow(t, r)
	if s := next(t, seen); s.Commit != head {
		t.Fatalf("%+v", s)
	}
	run(t, dir, "push", "-q", "origin", "main:trunk")
	bare := run(t, dir, "remote", "get-url", "origin")
	run(t, bare, "update-ref", "-d", "refs/heads/main")
	r.Poke()
	s := next(t, seen)
	wantError(t, s.Trouble, `has no branch "main"`, "its branches: trunk")
	if s.Commit != head {
		t.Errorf("the last good head is lost: %+v", s)
	}
	wantFiles(t, r, head, 1)
	head = push(t, dir, "b.cue", "package a\n")
	r.Poke()
	if s := next(t, seen); s.Commit != head || s.Trouble != nil {
		t.Errorf("%+v", s)
	}
}

// Remotes that have not all themselves.
func TestRemoteOfClones(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	head := commit(t, dir, "b.cue", "package a\n")
	run(t, dir, "config", "uploadpack.allowFilter", "true")
	for name, args := range map[string][]string{"shallow": {"--depth=1"}, "partial": {"--filter=blob:none"}} {
		bare := filepath.Join(t.TempDir(), "x.git")
		run(t, ".", append([]string{"clone", "-q", "--bare", "file://" + dir, bare}, args...)...)
		r := open(t, git.Config{URL: serve(t, bare, "").URL + "/x.git", Dir: t.TempDir()})
		got, err := r.Head(t.Context())
		if name == "partial" { // git does not fetch what it lacks on behalf of others
			wantError(t, err, "the server says: ", "a partial clone cannot serve others")
			continue
		}
		if err != nil || got != head {
			t.Errorf("%s: %s, %v", name, got, err)
			continue
		}
		wantFiles(t, r, head, 2)
	}
}

// What is too large is not taken, and leaves nothing behind.
func TestLargePack(t *testing.T) {
	t.Parallel()
	dir, head, _, url := hosted(t, "")
	store := t.TempDir()
	r := open(t, git.Config{URL: url, Branch: "main", Dir: store})
	wantHead(t, r, head)
	noise := make([]byte, 1<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	push(t, dir, "noise.cue", fmt.Sprintf("package a\n// %x\n", noise))
	r.LimitPack(1 << 20)
	_, err := r.Head(t.Context())
	wantError(t, err, "the server sends more than 1 MiB", "a repository of its own")
	wantFiles(t, r, head, 1)
	for _, pattern := range []string{"*.new", "*.old", "remote.git/objects/pack/tmp_*"} {
		if left, err := filepath.Glob(filepath.Join(store, pattern)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	wantFiles(t, open(t, git.Config{URL: url, Branch: "main", Dir: store}), head, 1)
}

// The store is made afresh before its packs are too many.
func TestManyPacks(t *testing.T) {
	t.Parallel()
	dir, head, _, url := hosted(t, "")
	store := t.TempDir()
	r := open(t, git.Config{URL: url, Branch: "main", Dir: store})
	wantHead(t, r, head)
	packs := filepath.Join(store, "remote.git", "objects", "pack")
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(packs, fmt.Sprintf("%d.pack", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	head = push(t, dir, "b.cue", "package a\n")
	wantHead(t, r, head)
	wantFiles(t, r, head, 2)
	if left, err := filepath.Glob(filepath.Join(packs, "*.pack")); err != nil || len(left) != 1 {
		t.Errorf("%d packs, %v; want 1", len(left), err)
	}
}

// A remote in trouble is looked at sooner at first, then less and less often,
// and as late as it asks for.
func TestPause(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	r := open(t, git.Config{URL: s.URL + "/x", Dir: t.TempDir(), Poll: 30 * time.Second})
	_, busy := r.Head(t.Context())
	wantError(t, busy, "503 Service Unavailable", "tried again")
	trouble := errors.New("x")
	for _, tt := range []struct {
		failed  int
		trouble error
		want    time.Duration
	}{
		{0, nil, 30 * time.Second},
		{1, trouble, 5 * time.Second},
		{2, trouble, 10 * time.Second},
		{4, trouble, 40 * time.Second},
		{100, trouble, 5 * time.Minute},
		{1, busy, 2 * time.Minute},
	} {
		lo, hi := time.Duration(1<<62), time.Duration(0)
		for range 200 {
			d := r.Pause(tt.failed, tt.trouble)
			lo, hi = min(lo, d), max(hi, d)
		}
		if lo < tt.want*9/10 || hi > tt.want*11/10 || hi-lo < tt.want/20 {
			t.Errorf("after %d failures: %s to %s, want %s give or take a tenth", tt.failed, lo, hi, tt.want)
		}
	}
	dir, _ := newRepo(t)
	if d := open(t, git.Config{URL: dir, Poll: time.Minute}).Pause(9, trouble); d != time.Minute {
		t.Errorf("a local repository is looked at again after %s", d)
	}
}
