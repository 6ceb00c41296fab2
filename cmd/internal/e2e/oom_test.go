package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// TestOOMOfAChild: a process that its task has put far from itself, in a session of
// its own and with another parent, and that the kernel kills for lack of memory, is
// an event that names the task, once; the task runs on.
func TestOOMOfAChild(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	// It begins when it was seen to run, so that the kill comes between two reports.
	limited := fmt.Sprintf(`package crew

import "%s/muster"

job: big: muster.#Job & {
	user: "crew", cell: %q
	task: {
		process: command: ["/bin/sh", "-c", "(setsid sh -c 'sleep 2; dd if=/dev/zero of=/dev/null bs=256M count=1' &); exec sleep 1000"]
		resources: {cpuMilli: 10, ramBytes: 48Mi, diskBytes: 1Mi}
		graceSeconds: 1
	}
}
`, module, cellName)
	s := c.converge(c.commit("a task with a child", map[string][]byte{teamFile: []byte(limited)}))
	for _, m := range s.Machines {
		if m.Attributes[schema.HasMemory] != "true" {
			t.Skipf("NOT TESTED: needs a cgroup with a memory limit: %v", m.Attributes)
		}
	}
	query := client.EventQuery{EventQuery: schema.EventQuery{Kind: schema.EventOOM}}
	records, err := c.api.Events(t.Context(), query, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 || records[0].Task != "crew/big/0" || !strings.Contains(records[0].Message, "out of memory: the kernel killed processes of the task (1); the task keeps running") {
		t.Fatalf("events %+v, want one of crew/big/0, with 1 process", records)
	}
	c.until("the task runs on", func(s *status.Status) string {
		for _, ts := range s.Tasks {
			if ts.Name == "crew/big/0" && ts.State == "running" && ts.Restarts == 0 {
				return ""
			}
		}
		return fmt.Sprintf("tasks: %+v", s.Tasks)
	})
}
