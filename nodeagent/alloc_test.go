package nodeagent_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestAllocOverDisk: what the tasks of an alloc put into their shared directory
// counts against the alloc's disk. Beyond it they stop, then the alloc does, and
// its directory is empty when it comes back.
func TestAllocOverDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	pair, web := assignment("pair", 0, 1, schema.Allocs), assignment("web", 0, 2, schema.Service)
	pair.Job.Task.Resources.DiskBytes = 64 * mib
	web.Alloc = &schema.AllocUse{Set: "pair", Generation: 1}
	m.assign(pair, web)
	m.settle()
	last(m.find(pair.Task, 1)).Usage = &schema.Usage{At: m.now, DiskBytes: 64 * mib, DiskAt: m.now}
	if plan := m.settle(); plan.Alive != 2 {
		t.Fatalf("%d run with all of the budget used, want 2", plan.Alive)
	}
	last(m.find(pair.Task, 1)).Usage.DiskBytes++
	m.settle() // SIGTERM to the task alone
	if c := last(m.find(web.Task, 2)); c.Stop == nil || c.Stop.Kind != schema.CauseAllocGone || !strings.Contains(c.Stop.Message, "disk: ") {
		t.Fatalf("the task's stop is %v, want what is wrong with its alloc", c.Stop)
	}
	if c := last(m.find(pair.Task, 1)); c.Stop != nil {
		t.Fatalf("the alloc stops before its task has: %v", c.Stop)
	}
	m.exit(web.Task, schema.Exit{Code: -1, Signal: "SIGTERM"})
	m.settle()
	c := last(m.find(pair.Task, 1))
	if c.Stop == nil || c.Stop.Resource != schema.OwnDisk {
		t.Fatalf("the alloc has stopped with %v, want its own disk", c.Stop)
	}
	m.exit(pair.Task, schema.Exit{Code: -1})
	for range 10 {
		plan := nodeagent.Decide(m.input())
		for _, a := range plan.Actions {
			if a.Kind == nodeagent.Start && a.Task == pair.Task {
				if !a.Clear {
					t.Error("it starts again with what was too much")
				}
				return
			}
		}
		m.now = plan.Wake
	}
	t.Error("the alloc does not come back")
}
