package e2e_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
)

// saying is a repository with one task, which writes word into its journal.
func saying(c *cell, word string) []byte {
	return fmt.Appendf(nil, `package crew

import "%s/muster"

job: web: muster.#Job & {
	user: "crew", cell: %q
	task: {
		process: command: [%q, %q, "polite", %q]
		resources: {cpuMilli: 10, ramBytes: 32Mi, diskBytes: 1Mi}
		graceSeconds: 1
	}
}
`, module, cellName, c.path("task.sh"), c.path("journals"), word)
}

// TestSaveToRunning measures how long it takes from a save in a work tree to a
// process that was started with what was saved.
func TestSaveToRunning(t *testing.T) {
	t.Parallel()
	c := prepare(t)
	c.initRepo()
	c.must(os.RemoveAll(filepath.Join(c.repo, ".git"))) // it need not be one
	c.state = c.path("dev", "agent")
	dev, err := launch(c.path("master.log"), filepath.Join(c.bin, "muster"), "dev", c.repo, "--worktree", "--data-dir", c.path("dev"), "--name", machine, "--writable", c.path("journals"))
	c.must(err)
	c.master = dev
	c.joined()
	file := filepath.Join(c.repo, teamFile)
	c.must(os.MkdirAll(filepath.Dir(file), 0o755))
	var took []time.Duration
	for i := range 7 {
		word := fmt.Sprintf("save%d", i)
		// As most editors do it.
		c.must(os.WriteFile(file+".tmp", saying(c, word), 0o600))
		begin := time.Now()
		c.must(os.Rename(file+".tmp", file))
		for !slices.Contains(readJournals(t, c.path("journals"))["web.0"].words, word) {
			if time.Since(begin) > bound {
				t.Fatalf("no task says %s within %s", word, bound)
			}
			time.Sleep(time.Millisecond) // what is measured
		}
		took = append(took, time.Since(begin))
		c.until("the cell converges", func(s *status.Status) string { return strings.Join(s.Waiting, "; ") })
	}
	first := took[0]
	slices.Sort(took)
	t.Logf("from a save to a running task: first %s, median %s, longest %s; goal: 1 s", first, took[len(took)/2], took[len(took)-1])
}

// gitServer serves the cell's repository, at /config/.git.
func (c *cell) gitServer() http.Handler {
	c.t.Helper()
	out, err := exec.CommandContext(c.t.Context(), "git", "--exec-path").Output()
	c.must(err)
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  append(os.Environ(), "GIT_PROJECT_ROOT="+c.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"),
	}
}

// TestOverTheNetwork has a cell follow a repository behind https: a commit
// becomes a process; while the token is refused and while the server is away
// tasks run on; a new token is used without a restart.
func TestOverTheNetwork(t *testing.T) {
	t.Parallel()
	c := prepare(t)
	c.initRepo()
	var token atomic.Value
	token.Store("t0ken-one")
	var away atomic.Bool
	backend := c.gitServer()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch _, got, _ := req.BasicAuth(); {
		case away.Load():
			panic(http.ErrAbortHandler)
		case got != token.Load():
			w.WriteHeader(http.StatusUnauthorized)
		default:
			req.Header.Del("Authorization")
			backend.ServeHTTP(w, req)
		}
	}))
	defer s.Close()
	c.must(os.WriteFile(c.path("ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	c.must(os.WriteFile(c.path("token"), []byte("t0ken-one\n"), 0o600))
	c.follows = []string{"--repo", s.URL + "/config/.git", "--git-token-file", c.path("token"), "--git-ca-file", c.path("ca.pem"), "--poll", "1h"}
	c.begin()
	now := func() {
		var trouble *client.Error // which the status has, too
		if _, err := c.api.Reconcile(t.Context()); !errors.As(err, &trouble) || trouble.Code != http.StatusBadGateway {
			c.must(err)
		}
	}
	running := func(commit, word string) {
		t.Helper()
		now()
		if got := c.journalsOf(c.converge(commit))["web.0"].words; got[len(got)-1] != word {
			t.Errorf("the task says %s, want %s", got, word)
		}
	}
	running(c.commit("one", map[string][]byte{teamFile: saying(c, "one")}), "one")

	token.Store("t0ken-two")
	two := c.commit("two", map[string][]byte{teamFile: saying(c, "two")})
	now()
	trouble := func(what string) {
		t.Helper()
		s := c.until(what, func(s *status.Status) string {
			if !strings.Contains(s.Source, what) {
				return "the repository's trouble is " + s.Source
			}
			return ""
		})
		if len(s.Tasks) != 1 || s.Tasks[0].State != "running" || s.SourceAt.IsZero() {
			t.Errorf("in trouble: %+v, read at %s", s.Tasks, s.SourceAt)
		}
	}
	trouble("401 Unauthorized: the token is rejected")
	c.must(os.WriteFile(c.path("token"), []byte("t0ken-two"), 0o600))
	running(two, "two")

	away.Store(true)
	three := c.commit("three", map[string][]byte{teamFile: saying(c, "three")})
	now()
	trouble("the connection was lost")
	away.Store(false)
	running(three, "three")

	log, err := os.ReadFile(c.path("master.log"))
	c.must(err)
	for _, secret := range []string{"t0ken", "eC1hY2Nlc3MtdG9rZW46"} {
		if strings.Contains(string(log), secret) {
			t.Errorf("%q is in the master's log:\n%s", secret, log)
		}
	}
}
