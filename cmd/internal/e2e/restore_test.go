package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// TestRestore loses the master's data directory, after much was decided that no
// snapshot has. A master that begins with an empty directory is refused its
// machine, in words that say what to do, and touches no task. One that begins with
// a restored snapshot takes over what runs, of whatever generation, and gives none
// a second time.
func TestRestore(t *testing.T) {
	t.Parallel()
	c := prepare(t)
	c.follows = append(c.follows, "--snapshot-every", "1s")
	c.initRepo()
	c.begin()
	pack := func(word string, more ...job) string {
		return c.commit(word, map[string][]byte{teamFile: c.pack("crew", append(more,
			job{name: "steady", tasks: 2},
			job{name: "web", word: word, tasks: 2, more: "update: maxParallel: 2"},
			job{name: "count", kind: "batch", mode: "batch", tasks: 2})...)})
	}
	first := pack("before")
	c.until("the batch is done", func(s *status.Status) string {
		for _, j := range s.Jobs {
			if j.Name == "crew/count" && j.Done == 2 && s.Applied == first && s.Converged {
				return ""
			}
		}
		return "it is not"
	})
	snapshot := c.nextSnapshot(c.path("master"), func(commit string) { c.converge(commit) })
	last := pack("after", job{name: "later", tasks: 2})
	s := c.converge(last)
	before, tasks := c.journalsOf(s), tasksOf(s)

	lost := func() {
		c.must(c.master.end(syscall.SIGKILL, bound))
		c.must(os.RemoveAll(c.path("master")))
		c.api.Close()
		c.api = nil
	}
	lost()
	c.startMaster()
	c.must(within(bound, func() error {
		for _, name := range []string{"master.log", "agent.log"} {
			log, err := os.ReadFile(c.path(name))
			if err != nil || !strings.Contains(string(log), "the store was lost or is older than the machine's state; its tasks keep running") || !strings.Contains(string(log), "`muster master restore SNAPSHOT`") {
				return fmt.Errorf("%s does not say what is wrong: %w", name, err)
			}
		}
		return nil
	}))
	c.until("the empty master has applied the head", func(s *status.Status) string { return unless(s.Applied, last) })
	lost()
	out, err := exec.CommandContext(t.Context(), filepath.Join(c.bin, "muster"), "master", "restore", snapshot, "--data-dir", c.path("master")).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "restored cell e2e as of ") {
		t.Fatalf("restore: %v: %s", err, out)
	}
	c.startMaster()
	c.until("the machines report", func(s *status.Status) string {
		if strings.Contains(strings.Join(s.Waiting, " "), "the store was restored from a snapshot of") {
			return ""
		}
		return strings.Join(s.Waiting, "; ")
	})
	c.allReported()
	s = c.converge(last)
	for name, was := range tasks {
		is := tasksOf(s)[name]
		if is.Generation != was.Generation || is.PID != was.PID || is.State != was.State {
			t.Errorf("task %s was %s as pid %d, generation %d; it is %s as pid %d, generation %d",
				name, was.State, was.PID, was.Generation, is.State, is.PID, is.Generation)
		}
	}
	for name, b := range c.journalsOf(s) {
		if len(b.starts) != len(before[name].starts) || b.terms != before[name].terms {
			t.Errorf("%s: %+v, before %+v", name, b, before[name])
		}
	}
	// And the cell goes on, with numbers that were never given.
	s = c.converge(pack("again", job{name: "later", tasks: 2}))
	for name, b := range c.journalsOf(s) {
		job, _, _ := strings.Cut(name, ".")
		if n := len(b.generations); job == "web" && (n < 2 || b.generations[n-1] < 10_000_000_000 || b.doubles > 0) || job != "web" && n != 1 {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// nextSnapshot has the master whose data directory is dir store something, and returns a
// copy of the snapshot that it takes of that.
func (c *cell) nextSnapshot(dir string, converge func(commit string)) string {
	c.t.Helper()
	all := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.snapshot")) // sorted by time
		c.must(err)
		return names
	}
	kept, before := c.path("kept.snapshot"), all()
	converge(c.commit("nothing that runs", map[string][]byte{"README.md": []byte("e2e")}))
	c.must(within(bound, func() error {
		now := all()
		if n := len(now); n > 0 && !slices.Contains(before, now[n-1]) {
			data, err := os.ReadFile(now[n-1])
			return errors.Join(err, os.WriteFile(kept, data, 0o600))
		}
		return fmt.Errorf("there is none yet but %q", before)
	}))
	return kept
}

// restoredReported is in the event of a restored cell whose machines have reported.
const restoredReported = "the machines of the restored cell have reported"

// allReported waits until the master of a restored cell has its machines' reports, which
// takes a minute.
func (c *cell) allReported() {
	c.t.Helper()
	q := client.EventQuery{EventQuery: schema.EventQuery{Kind: schema.EventMaster}}
	c.must(within(3*bound, func() error {
		records, err := c.api.Events(c.t.Context(), q, 0)
		for _, r := range records {
			if strings.Contains(r.Message, restoredReported) {
				return nil
			}
		}
		return fmt.Errorf("they have not reported: %w", err)
	}))
}

func tasksOf(s *status.Status) map[string]status.TaskStatus {
	tasks := map[string]status.TaskStatus{}
	for _, t := range s.Tasks {
		tasks[t.Name] = t
	}
	return tasks
}
