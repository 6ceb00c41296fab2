package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// single is a repository with one service of two tasks, and something in it
// that no task minds.
func single(c *cell, remark string) []byte {
	return fmt.Appendf(nil, `package crew

import "%s/muster"

// %s
job: web: muster.#Job & {
	user: "crew", cell: %q, tasks: 2
	task: {
		process: command: [%q, %q, "polite", "same"]
		resources: {cpuMilli: 10, ramBytes: 32Mi, diskBytes: 1Mi}
		graceSeconds: 1
	}
}
`, module, remark, cellName, c.path("task.sh"), c.path("journals"))
}

// TestCell looks at one running cell from several sides, one after the other.
func TestCell(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.converge(c.commit("a service", map[string][]byte{teamFile: single(c, "first")}))
	on := func(f func(*testing.T, *cell)) func(*testing.T) {
		return func(t *testing.T) {
			sub := *c
			sub.t = t
			f(t, &sub)
		}
	}
	t.Run("listeners", on(testListeners))
	t.Run("modes", on(testModes))
	t.Run("memory", on(testMemory))
	t.Run("keeper", on(testKeeperKilled))
}

// maxKeeper is what a keeper may have resident, in KiB: there are as many as
// tasks.
const maxKeeper = 3 << 10

// testMemory weighs the parts of the cell.
func testMemory(t *testing.T, c *cell) {
	parts, err := c.parts()
	if err != nil {
		t.Fatal(err)
	}
	keepers := 0
	for pid, what := range parts {
		if what != keeperPart {
			continue
		}
		keepers++
		err := eventually(func() error { // it gives back what its start took when that is a second ago
			if kib := resident(t, pid); kib >= maxKeeper {
				return fmt.Errorf("keeper %d has %d KiB resident, want less than %d", pid, kib, maxKeeper)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if keepers != 2 {
		t.Errorf("%d keepers, want 2", keepers)
	}
	t.Logf("agent: %d KiB resident, master: %d KiB", resident(t, c.agent.pid()), resident(t, c.master.pid()))
}

// testKeeperKilled kills the keeper of a task with SIGKILL: the task goes with
// it, and is started again by its agent, which says why.
func testKeeperKilled(t *testing.T, c *cell) {
	before := readJournals(t, c.path("journals"))
	victim, other := before["web.0"].last(), before["web.1"].last()
	task, err := look(victim.pid)
	if err != nil {
		t.Fatal(err)
	}
	if first, err := look(task.parent); err == nil && strings.Contains(first.words(), "muster-keeper init ") {
		task.parent = first.parent // above the first process of its namespaces
	}
	if words := (process{pid: task.parent}).words(); !strings.Contains(words, "muster-keeper") {
		t.Fatalf("the parent of task %d is %q", task.pid, words)
	}
	if err := syscall.Kill(task.parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var web status.TaskStatus
	s := c.until("the task runs again", func(s *status.Status) string {
		for _, ts := range s.Tasks {
			if ts.Name == "crew/web/0" {
				web = ts
			}
		}
		if s.Converged && web.State == "running" && web.PID != victim.pid {
			return ""
		}
		return fmt.Sprintf("task crew/web/0 is %s as pid %d", web.State, web.PID)
	})
	if victim.same() {
		t.Errorf("task process %d has outlived its keeper", victim.pid)
	}
	if web.Restarts != 1 || len(web.History) != 1 || !strings.Contains(web.History[0], "its keeper was killed") {
		t.Errorf("%d restarts with history %q, want one that says that the keeper was killed", web.Restarts, web.History)
	}
	records, err := c.api.Events(t.Context(), client.EventQuery{EventQuery: schema.EventQuery{Task: "crew/web/0", Kind: schema.EventRestart}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 || !strings.Contains(records[0].Message, "its keeper was killed") {
		t.Errorf("events %+v, want one restart that says why", records)
	}
	after := c.journalsOf(s)
	if b := after["web.0"]; len(b.starts) != len(before["web.0"].starts)+1 || b.doubles != 0 || b.last().pid != web.PID {
		t.Errorf("journal of web.0 %+v, want one more start, alone, as pid %d", b, web.PID)
	}
	if b := after["web.1"]; b.last() != other || b.doubles != 0 || !other.same() {
		t.Errorf("web.1 was touched: %+v, alive %t", b, other.same())
	}
	// The agent cleans up after a keeper that could not. One that waits for a task is none of a task's.
	err = eventually(func() error {
		parts, err := c.parts()
		keepers := 0
		for _, what := range parts {
			if what == keeperPart {
				keepers++
			}
		}
		if err == nil && keepers != 2 {
			err = fmt.Errorf("%d keepers, want 2", keepers)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
