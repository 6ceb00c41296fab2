package git_test

import (
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/git"
)

// server serves the bare repository at dir with git's own http-backend; with
// a password to those who know it. It counts the fetches.
type server struct {
	*httptest.Server
	fetches atomic.Int64
}

func serve(t *testing.T, dir, password string) *server {
	t.Helper()
	backend := filepath.Join(run(t, ".", "--exec-path"), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("this git has no http-backend")
	}
	h := &cgi.Handler{Path: backend, Stderr: io.Discard, Env: append(gitEnv(), "GIT_PROJECT_ROOT="+filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1")}
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, got, _ := req.BasicAuth(); got != password {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(req.URL.Path, "/git-upload-pack") {
			s.fetches.Add(1)
		}
		h.ServeHTTP(w, req)
	}))
	t.Cleanup(s.Close)
	return s
}

// hosted makes a repository, a bare one that it is pushed to, and a server.
func hosted(t *testing.T, password string) (dir, head string, s *server, url string) {
	t.Helper()
	dir, head = newRepo(t)
	bare := kinds["bare"](t, dir)
	run(t, dir, "remote", "add", "origin", bare)
	s = serve(t, bare, password)
	return dir, head, s, s.URL + "/x.git"
}

func push(t *testing.T, dir string, files ...string) string {
	t.Helper()
	head := commit(t, dir, files...)
	run(t, dir, "push", "-q", "-f", "origin", "main")
	return head
}

func wantFiles(t *testing.T, r *git.Repo, commit string, want int) {
	t.Helper()
	tree, err := r.Tree(t.Context(), commit)
	if err != nil || len(tree.Files) != want {
		t.Errorf("Tree: %d files, %v; want %d", len(tree.Files), err, want)
	}
}

func TestRemote(t *testing.T) {
	t.Parallel()
	dir, head, s, url := hosted(t, "")
	store := t.TempDir()
	r := open(t, git.Config{URL: url, Branch: "main", Dir: store})
	for range 3 {
		wantHead(t, r, head)
	}
	wantFiles(t, r, head, 1)
	if n := s.fetches.Load(); n != 1 {
		t.Errorf("%d fetches of a head that did not move, want 1", n)
	}
	for _, name := range []string{"b.cue", "c.cue", "d.cue"} { // fetched on top of a shallow store
		head = push(t, dir, name, "package a\n")
		wantHead(t, r, head)
	}
	wantFiles(t, r, head, 4)
	run(t, dir, "reset", "-q", "--hard", "HEAD~2") // and backwards, by force
	head = push(t, dir, "e.cue", "package a\n")
	wantHead(t, r, head)
	wantFiles(t, r, head, 3)
	if _, err := r.Resolve(t.Context(), "side"); err == nil || !strings.Contains(err.Error(), "only the head is fetched") {
		t.Errorf("Resolve: %v", err)
	}
	for _, rev := range []string{"main", "HEAD", head} {
		if got, err := r.Resolve(t.Context(), rev); err != nil || got != head {
			t.Errorf("Resolve(%s): %s, %v", rev, got, err)
		}
	}
	if n := s.fetches.Load(); n > 10 {
		t.Errorf("%d fetches for 5 heads", n)
	}
	// The branch that the remote calls its own.
	wantHead(t, open(t, git.Config{URL: url, Dir: t.TempDir()}), head)
}

// A remote that is away is trouble, not an end: the last head stays, also for
// the next process.
func TestRemoteAway(t *testing.T) {
	t.Parallel()
	_, head, s, url := hosted(t, "")
	cfg := git.Config{URL: url, Dir: t.TempDir(), Poll: time.Hour}
	r := open(t, cfg)
	heads := follow(t, r)
	if h := next(t, heads); h.Commit != head || h.Trouble != nil {
		t.Fatalf("%+v", h)
	}
	s.Close()
	r.Poke()
	h := next(t, heads)
	wantError(t, h.Trouble, "connection refused", "check the URL and the network")
	if h.Commit != head {
		t.Errorf("the last good head is lost: %+v", h)
	}
	again := open(t, cfg)
	if h := next(t, follow(t, again)); h.Commit != head || h.Trouble == nil {
		t.Errorf("after a restart: %+v", h)
	}
	wantFiles(t, again, head, 1)
	// Nor is it lost when a master was killed while it replaced the store.
	if err := os.Rename(filepath.Join(cfg.Dir, "remote.git"), filepath.Join(cfg.Dir, "remote.git.old")); err != nil {
		t.Fatal(err)
	}
	if h := next(t, follow(t, open(t, cfg))); h.Commit != head || h.Trouble == nil {
		t.Errorf("after a crash: %+v", h)
	}
	// Another repository's store is not taken for this one's.
	cfg.URL += "-other"
	if h := next(t, follow(t, open(t, cfg))); h.Commit != "" || h.Trouble == nil {
		t.Errorf("of another URL: %+v", h)
	}
}

// Whatever is wrong with the store, it is made afresh; what lies beside it
// stays.
func TestRemoteStoreIsDisposable(t *testing.T) {
	t.Parallel()
	dir, _, _, url := hosted(t, "")
	store := t.TempDir()
	beside := filepath.Join(store, "beside")
	if err := os.WriteFile(beside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := open(t, git.Config{URL: url, Dir: store})
	for i, harm := range []func(string) error{
		func(string) error { return nil },
		os.RemoveAll,
		func(p string) error { return os.RemoveAll(filepath.Join(p, "objects", "pack")) },
		func(p string) error { return os.WriteFile(filepath.Join(p, "config"), []byte("[["), 0o600) },
		func(p string) error { return os.WriteFile(filepath.Join(p, "HEAD"), []byte("?"), 0o600) },
	} {
		if err := harm(filepath.Join(store, "remote.git")); err != nil {
			t.Fatal(err)
		}
		head := push(t, dir, "a.cue", "package a\n"+strings.Repeat("\n", i+1))
		wantHead(t, r, head)
		wantFiles(t, r, head, 1)
		wantFiles(t, open(t, git.Config{URL: url, Dir: store}), head, 1)
	}
	if _, err := os.Stat(beside); err != nil {
		t.Errorf("what was beside the store: %v", err)
	}
}

func TestRemoteErrors(t *testing.T) {
	t.Parallel()
	_, head, _, url := hosted(t, "secret")
	with := func(token string) git.Auth { return git.Auth{TokenFile: file(t, token)} }
	wantHead(t, open(t, git.Config{URL: url, Auth: with("secret\n"), Dir: t.TempDir()}), head)
	tests := []struct {
		name          string
		url           string
		auth          git.Auth
		branch        string
		problem, hint string
	}{
		{"no token", url, git.Auth{}, "", "401 Unauthorized: authentication is required", "--git-token-file"},
		{"wrong token", url, with("wr0ng"), "", "401 Unauthorized: the token is rejected", "has not expired"},
		{"no repository", strings.Replace(url, "x.git", "y.git", 1), with("secret"), "", "404 Not Found: there is no such repository", "check the URL"},
		{"no branch", url, with("secret"), "trunk", `has no branch "trunk"`, "its branches: main"},
	}
	for _, tt := range tests {
		_, err := open(t, git.Config{URL: tt.url, Branch: tt.branch, Auth: tt.auth, Dir: t.TempDir()}).Head(t.Context())
		wantError(t, err, tt.problem, tt.hint)
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "wr0ng")) {
			t.Errorf("%s: the token is in the error: %v", tt.name, err)
		}
	}
}

func TestRemoteEmpty(t *testing.T) {
	t.Parallel()
	bare := filepath.Join(t.TempDir(), "x.git")
	run(t, ".", "init", "-q", "--bare", "-b", "main", bare)
	s := serve(t, bare, "")
	_, err := open(t, git.Config{URL: s.URL + "/x.git", Branch: "main", Dir: t.TempDir()}).Head(t.Context())
	wantError(t, err, "is empty: it has no commit", `commit to branch "main"`)
}

// A revision of a remote: a tag that is an object of its own, one that is none, a branch,
// a commit by its hash, and what is not there.
func TestRemoteRevision(t *testing.T) {
	t.Parallel()
	dir, first, _, url := hosted(t, "")
	run(t, dir, "tag", "-a", "-m", "one", "v1.0.0")
	run(t, dir, "tag", "light")
	run(t, dir, "push", "-q", "origin", "v1.0.0", "light")
	second := push(t, dir, "b.cue", "package a\n")
	run(t, dir, "push", "-q", "origin", first+":refs/tags/"+second) // which is not what the hash says
	for rev, want := range map[string]string{"v1.0.0": first, "light": first, "main": second, second: second} {
		r := open(t, git.Config{URL: url, Rev: rev, Dir: t.TempDir()})
		wantHead(t, r, want)
		wantFiles(t, r, want, map[string]int{first: 1, second: 2}[want])
	}
	for rev, problem := range map[string]string{"v2.0.0": `there is no tag or branch "v2.0.0"`, strings.Repeat("ab", 20): "not our ref"} {
		_, err := open(t, git.Config{URL: url, Rev: rev, Dir: t.TempDir()}).Head(t.Context())
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %s", rev, err, problem)
		}
	}
	for _, cfg := range []git.Config{{URL: dir, Rev: "main"}, {URL: url, Rev: "main", Branch: "main", Dir: t.TempDir()}} {
		if _, err := git.Open(t.Context(), cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}
