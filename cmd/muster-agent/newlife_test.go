package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// kinds is a view with tasks of each kind; those of them that can be declared so
// must never run twice: a service, a batch task, and one inside an alloc.
func (c *cell) kinds() (all, free []schema.Assignment) {
	names := []string{"inside", "job", "ledger", "logs", "pair", "web"}
	for i, kind := range []schema.JobKind{schema.Service, schema.Batch, schema.Service, schema.System, schema.Allocs, schema.Service} {
		a := c.task(i, uint64(i)+1)
		a.Job.Kind, a.Job.Name, a.Task.Job = kind, names[i], names[i]
		if i < 3 {
			a.Job.Silence = &schema.Silence{NeverTwice: true}
		}
		switch a.Job.Name {
		case "inside":
			a.Alloc = &schema.AllocUse{Set: "pair", Index: 4, Generation: 5}
		case "pair":
			a.Job.Task.Process, a.Job.Task.Resources.Ports, a.Ports = schema.Process{}, nil, nil
		}
		a.Data = schema.DigestOf(a.Job)
		if all = append(all, a); i >= 3 {
			free = append(free, a)
		}
	}
	return all, free
}

// TestAgentAndTasksAreStopped: an agent is stopped with its tasks, by SIGINT and by
// SIGKILL to all. What must never run twice is started again when a master has said
// so, and not before, be there one or not.
func TestAgentAndTasksAreStopped(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	all, free := c.kinds()
	c.start()
	c.push(all...)
	c.until("all run", allRunning(len(all)))
	if code := c.signal(syscall.SIGINT); code != 0 {
		t.Fatalf("SIGINT: exit %d\n%s", code, c.stderr)
	}

	c.start("--master", "unix:"+c.path("nobody"))
	c.says("msg=started", len(free))
	c.heldBack(all[:3])
	if s := c.stderr.String(); strings.Count(s, `msg="not started yet"`) != 3 || strings.Count(s, schema.Unconfirmed) != len(free) {
		t.Errorf("it is not said what waits, and what was started without a master:\n%s", s)
	}

	c.killAll()
	c.start()
	c.push(free...) // the others have moved
	c.until("what is still assigned runs", allRun(free))
	c.heldBack(all[:3])

	c.killAll()
	c.start()
	for i := range 3 {
		all[i].Generation += 10 // they are back
	}
	c.push(all...)
	c.until("all run again", allRun(all))
	if code := c.signal(syscall.SIGINT); code != 0 {
		t.Errorf("exit %d\n%s", code, c.stderr)
	}
}

// heldBack fails the test if the agent has started one of the tasks.
func (c *cell) heldBack(tasks []schema.Assignment) {
	c.t.Helper()
	for _, a := range tasks {
		if s := c.stderr.String(); strings.Contains(s, "msg=start task="+a.Task.Short()+" ") {
			c.t.Errorf("%s is started:\n%s", a.Task.Short(), s)
		}
	}
}

// says waits until the agent has said something so many times.
func (c *cell) says(what string, times int) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); strings.Count(c.stderr.String(), what) < times; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%q is not said %d times within 30 s: %s", what, times, c.stderr)
		}
	}
}

// allRun is satisfied when all of these run, whatever has become of others.
func allRun(want []schema.Assignment) func([]schema.TaskStatus) bool {
	return func(list []schema.TaskStatus) bool {
		n := 0
		for _, s := range list {
			if s.State == schema.Running && slices.ContainsFunc(want, func(a schema.Assignment) bool { return a.Generation == s.Generation }) {
				n++
			}
		}
		return n == len(want)
	}
}

// killAll kills the agent, and all keepers and tasks.
func (c *cell) killAll() {
	c.t.Helper()
	c.signal(syscall.SIGKILL)
	files, err := filepath.Glob(c.path("state/tasks/local/u/*/*/*/*/" + keeper.StateFile))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range files {
		var state keeper.State
		if b, err := os.ReadFile(name); err == nil && json.Unmarshal(b, &state) == nil {
			killOne(state.Keeper)
			killOne(state.Task)
		}
	}
}
