package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

var storm = flag.Int("e2e.storm", 60, "commits of TestStorm")

// TestBadPackage commits a change of many packages of which one is bad: the
// others apply, the bad one keeps its last good version and its process, and the
// status says which and why.
func TestBadPackage(t *testing.T) {
	t.Parallel()
	const packages, bad = 25, 12
	c := newCell(t)
	files := func(word string) map[string][]byte {
		out := map[string][]byte{}
		for i := range packages {
			name := fmt.Sprintf("p%d", i)
			out[fmt.Sprintf("teams/crew/%s/%s.cue", name, name)] = c.pack(name, job{name: name, word: word})
		}
		return out
	}
	badDir := fmt.Sprintf("teams/crew/p%d", bad)
	badFile := fmt.Sprintf("%s/p%d.cue", badDir, bad)
	begin := time.Now()
	before := c.journalsOf(c.converge(c.commit("all good", files("first"))))
	t.Logf("%d packages of one task: first commit to converged in %s", packages, time.Since(begin).Round(time.Millisecond))

	change := files("second")
	change[badFile] = []byte(strings.Replace(string(change[badFile]), "tasks: 1", `tasks: "many"`, 1))
	begin = time.Now()
	hash := c.commit("one is bad", change)
	c.until("the commit is applied", func(s *status.Status) string {
		if s.Applied == hash {
			return ""
		}
		return fmt.Sprintf("applied is %.10s", s.Applied)
	})
	applied := time.Since(begin)
	s := c.until("the good packages are as the commit says", func(s *status.Status) string {
		n := 0
		for _, j := range s.Jobs {
			if j.Running == 1 && j.Updating == 0 {
				n++
			}
		}
		if n == packages && len(s.Waiting) == 1 {
			return ""
		}
		return fmt.Sprintf("%d of %d jobs are: %s", n, packages, strings.Join(s.Waiting, "; "))
	})
	t.Logf("commit to applied %s, to %d tasks restarted %s", applied.Round(time.Millisecond), packages-1, time.Since(begin).Round(time.Millisecond))
	if len(s.Stale) != 1 || s.Stale[0].Dir != badDir || s.Converged {
		t.Fatalf("stale %+v, converged %t: want %s alone", s.Stale, s.Converged, badDir)
	}
	blocker := s.Stale[0]
	if d := blocker.Diagnostics; len(d) != 1 || d[0].Path != badFile || d[0].Line == 0 || d[0].Expected == "" || blocker.Next == "" {
		t.Errorf("the blocker is reported as %+v: want one place in %s, what was expected, and what to do", blocker, badFile)
	}
	if !strings.Contains(s.Waiting[0], badFile) {
		t.Errorf("it waits for %q, want the place", s.Waiting[0])
	}
	for name, b := range c.journalsOf(s) {
		want := []string{"first", "second"}
		if name == fmt.Sprintf("p%d.0", bad) {
			want = want[:1]
			if was := before[name].last(); !was.same() || was != b.last() {
				t.Errorf("%s of the bad package was touched: %+v", name, b)
			}
		}
		if !slices.Equal(b.words, want) || b.doubles > 0 {
			t.Errorf("%s was started with %v (%d doubled), want %v", name, b.words, b.doubles, want)
		}
	}
	s = c.converge(c.commit("fixed", map[string][]byte{badFile: files("second")[badFile]}))
	for name, b := range c.journalsOf(s) {
		if !slices.Equal(b.words, []string{"first", "second"}) || b.doubles > 0 {
			t.Errorf("after the bad one was fixed %s has been started with %v (%d doubled)", name, b.words, b.doubles)
		}
	}
}

// git runs git in a directory.
func (c *cell) git(dir string, args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=e2e", "GIT_AUTHOR_EMAIL=e2e@example.com", "GIT_COMMITTER_NAME=e2e", "GIT_COMMITTER_EMAIL=e2e@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// stormWord is what tasks of a commit of the storm are given.
func stormWord(commit int) string { return fmt.Sprintf("commit-%d", commit) }

// TestStorm pushes commits as fast as git can, each of which restarts one job.
// The cell goes to the last one. What of those between it has taken is in its
// history; a task starts with no other, and never goes back to an older one.
// While the master stands still for a part of the storm, all but the newest of
// that part are skipped.
func TestStorm(t *testing.T) {
	t.Parallel()
	if *storm < 20 {
		t.Fatal("-e2e.storm: want 20 or more")
	}
	c := prepare(t)
	c.initRepo()
	bare := c.path("config.git")
	c.git(c.dir, "clone", "-q", "--bare", c.repo, bare)
	c.follows = []string{"--repo", bare}
	c.begin()
	push := func(i int) string {
		hash := c.commit(stormWord(i), map[string][]byte{teamFile: c.pack("crew",
			job{name: "web", word: stormWord(i), tasks: 3, more: "update: maxParallel: 2"}, job{name: "steady", tasks: 2})})
		c.git(c.repo, "push", "-q", bare, "HEAD")
		return hash
	}
	c.converge(push(0))
	at := map[string]int{} // commits by hash
	frozen := [2]int{*storm / 2, *storm/2 + 10}
	begin := time.Now()
	var last string
	for i := 1; i <= *storm; i++ {
		switch i {
		case frozen[0]:
			c.must(c.master.cmd.Process.Signal(syscall.SIGSTOP))
		case frozen[1]:
			c.must(c.master.cmd.Process.Signal(syscall.SIGCONT))
		}
		last = push(i)
		at[last] = i
	}
	pushed := time.Since(begin)
	s := c.converge(last)
	settled := time.Since(begin) - pushed
	adopted := c.adopted(at)
	t.Logf("%d commits pushed in %s, %d of them adopted; converged at the last %s later", *storm, pushed.Round(time.Millisecond), len(adopted), settled.Round(time.Millisecond))
	inside := 0
	for _, n := range adopted {
		// One may have been in progress when the master was stopped.
		if n > frozen[0] && n < frozen[1]-1 {
			inside++
		}
	}
	if inside > 0 {
		t.Errorf("%d commits were taken of %d that came while the master stood still", inside, frozen[1]-frozen[0])
	}
	c.checkStorm(s, adopted)
}

// checkStorm wants the tasks as the last commit of the storm says, and no start
// that was for nothing.
func (c *cell) checkStorm(s *status.Status, adopted []int) {
	t := c.t
	t.Helper()
	journals := c.journalsOf(s)
	for i := range 3 {
		b := journals[fmt.Sprintf("web.%d", i)]
		if b.doubles > 0 || len(b.starts) > len(adopted)+1 || b.words[len(b.words)-1] != stormWord(*storm) {
			t.Errorf("web/%d was started %d times (%d doubled), with %d commits taken; last with %s", i, len(b.starts), b.doubles, len(adopted), b.words[len(b.words)-1])
		}
		newest := -1
		for _, w := range b.words {
			var n int
			_, err := fmt.Sscanf(w, "commit-%d", &n)
			c.must(err)
			if n <= newest || n > 0 && !slices.Contains(adopted, n) {
				t.Errorf("web/%d was started with commit %d after %d; taken were %v", i, n, newest, adopted)
			}
			newest = n
		}
		t.Logf("web/%d was started %d times", i, len(b.starts))
	}
	for i := range 2 {
		if b := journals[fmt.Sprintf("steady.%d", i)]; len(b.starts) != 1 || !b.last().same() {
			t.Errorf("steady/%d was touched: %+v", i, b)
		}
	}
}

// adopted returns which commits are in the history as applied, as at numbers
// them, in the order in which they were.
func (c *cell) adopted(at map[string]int) []int {
	c.t.Helper()
	records, err := c.api.Events(c.t.Context(), client.EventQuery{EventQuery: schema.EventQuery{Kind: schema.EventApply}}, 0)
	c.must(err)
	var out []int
	for _, r := range records {
		if n, ok := at[r.Commit]; ok {
			out = append(out, n)
		}
	}
	if !slices.IsSorted(out) {
		c.t.Errorf("commits were applied in the order %v", out)
	}
	return out
}
