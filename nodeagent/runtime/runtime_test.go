package runtime_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// compareExit leaves out what no test can know.
var compareExit = cmpopts.IgnoreFields(schema.Exit{}, "At")

// ignoreLimits leaves out what an agent that adopts does not know: it sets the
// limits again.
var ignoreLimits = cmpopts.IgnoreFields(nodeagent.Process{}, "Limited", "Limits")

func TestExit(t *testing.T) {
	t.Parallel()
	testExit(t, newMachine(t))
}

func testExit(t *testing.T, m *machine) {
	t.Helper()
	for i, c := range []struct {
		script string
		want   schema.Exit
	}{
		{"exit 0", schema.Exit{Incarnation: 1}},
		{"exit 3", schema.Exit{Incarnation: 1, Code: 3}},
		{"kill -SEGV $$", schema.Exit{Incarnation: 1, Code: -1, Signal: "SIGSEGV"}},
		{"kill -KILL $$", schema.Exit{Incarnation: 1, Code: -1, Signal: "SIGKILL"}},
		{"sleep 0.01 & sleep 0.02 & exit 4", schema.Exit{Incarnation: 1, Code: 4}},
	} {
		p, _ := m.start(shell(i, c.script))
		if d := cmp.Diff(&c.want, wait(t, p), compareExit); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.script, d)
		}
	}
}

func TestTerm(t *testing.T) {
	t.Parallel()
	testTerm(t, newMachine(t))
}

func testTerm(t *testing.T, m *machine) {
	t.Helper()
	p, dir := m.start(shell(0, `trap 'echo notice; wait; exit 5' TERM; (trap 'echo child; exit' TERM; echo up; while :; do sleep 0.01; done) & echo up; wait`))
	eventually(t, "both up", func() bool { return strings.Count(said(t, dir), "up") == 2 })
	if err := p.Signal(false); err != nil {
		t.Fatal(err)
	}
	want := &schema.Exit{Incarnation: 1, Code: 5, Message: "SIGTERM was sent"}
	if d := cmp.Diff(want, wait(t, p), compareExit); d != "" {
		t.Errorf("exit (-want +got)\n%s", d)
	}
	if out := said(t, dir); !strings.Contains(out, "notice") || !strings.Contains(out, "child") {
		t.Errorf("output %q: want the signal to reach the whole process group", out)
	}
	if err := p.Signal(false); err != nil {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestTermThenKill(t *testing.T) {
	t.Parallel()
	testTermThenKill(t, newMachine(t))
}

func testTermThenKill(t *testing.T, m *machine) {
	t.Helper()
	p, dir := m.start(shell(0, `trap 'echo no' TERM; echo up; while :; do sleep 0.01; done`))
	says(t, dir, "up")
	if err := p.Signal(false); err != nil {
		t.Fatal(err)
	}
	says(t, dir, "no")
	if p.State().Exit != nil {
		t.Fatal("ended by SIGTERM, which it does not obey")
	}
	want := &schema.Exit{Incarnation: 1, Code: -1, Signal: "SIGKILL", Message: "SIGTERM was sent, then SIGKILL"}
	if d := cmp.Diff(want, end(t, p), compareExit); d != "" {
		t.Errorf("exit (-want +got)\n%s", d)
	}
}

// escape leaves a daemon behind: twice forked, in a session of its own, without
// its parent's environment and files. It is known by an argument, as its pid is
// one of its own namespace.
const escape = `( setsid env -i /bin/sh -c 'trap "" TERM HUP; echo out; exec >/dev/null 2>&1; : >up; while :; do sleep 0.05; done' "$MUSTER_TASK_DIR/daemon" & ) ; until [ -e up ]; do sleep 0.01; done; rm up; `

func TestEscape(t *testing.T) {
	t.Parallel()
	testEscape(t, newMachine(t))
}

func testEscape(t *testing.T, m *machine) {
	t.Helper()
	for i, script := range []string{
		escape + "exit 6",              // it outlives the main process
		escape + "echo up; sleep 1000", // it is killed with it
	} {
		p, dir := m.start(shell(i, script))
		if i == 1 {
			says(t, dir, "up")
			eventually(t, "its daemon", func() bool { return len(daemons(dir)) == 1 })
			end(t, p)
		}
		wait(t, p)
		if left := daemons(dir); len(left) > 0 || !strings.Contains(said(t, dir), "out") {
			t.Errorf("%s: %v have escaped", script, left)
		}
	}
}

// daemons returns the processes that escape has left behind for the task in dir.
func daemons(dir string) map[int]string {
	found := processesOf(filepath.Dir(dir))
	maps.DeleteFunc(found, func(_ int, command string) bool { return !strings.HasSuffix(command, "/daemon ") })
	return found
}

func TestForkBomb(t *testing.T) {
	t.Parallel()
	testForkBomb(t, newMachine(t))
}

func testForkBomb(t *testing.T, m *machine) {
	t.Helper()
	m.needGroups(t, "pids")
	a := shell(0, `b() { b & b & sleep 1000; }; b 2>/dev/null & sleep 0.2; exit 2`)
	a.Job.Task.Limits = &schema.Limits{Processes: 40}
	p, dir := m.start(a)
	if e := wait(t, p); e.Code != 2 {
		t.Errorf("exit %v, want status 2", e)
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	testOutOfMemory(t, newMachine(t))
}

func testOutOfMemory(t *testing.T, m *machine) {
	t.Helper()
	m.needGroups(t, "memory")
	p, _ := m.start(assignment(0, "tail", "/dev/zero"))
	want := &schema.Exit{Incarnation: 1, Code: -1, Signal: "SIGKILL", OOM: true}
	if d := cmp.Diff(want, wait(t, p), compareExit); d != "" {
		t.Errorf("exit (-want +got)\n%s", d)
	}
	if m.by == schema.Runsc {
		return // none of its processes is one of the machine: all of it ends
	}
	p, _ = m.start(shell(1, "dd if=/dev/zero of=/dev/null bs=512M count=1; exit 9"))
	want = &schema.Exit{Incarnation: 1, Code: 9, Message: "out of memory: the kernel killed 1 of its processes"}
	if d := cmp.Diff(want, wait(t, p), compareExit); d != "" {
		t.Errorf("exit of a task whose child was killed (-want +got)\n%s", d)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for i, c := range []struct {
		command []string
		want    string
	}{
		{[]string{"/nowhere/x"}, "exec /nowhere/x: no such file or directory"},
		{[]string{"no-such-command"}, "exec no-such-command: not found in PATH"},
		{[]string{"/etc/passwd"}, "permission denied"},
		{[]string{"/tmp/no-such-command"}, "/tmp"},
		{[]string{"/etc"}, "permission denied"},
		{nil, "it is empty"},
	} {
		a := assignment(i, c.command...)
		dir := place(t, m.dir, a, 1)
		_, err := m.Start(t.Context(), dir, a)
		if !errors.Is(err, runtime.ErrCommand) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("start %q: %v, want ErrCommand with %q", c.command, err, c.want)
		}
		if left := processesOf(dir); len(left) > 0 {
			t.Errorf("start %q: left %v", c.command, left)
		}
		if c.command == nil {
			continue // its directory was not even made
		}
		p, err := m.Adopt(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if e := wait(t, p); e.Code != -1 || !strings.Contains(e.Message, c.want) {
			t.Errorf("adopted after a failed start of %q: %v", c.command, e)
		}
	}
}

func TestStartGivesUp(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := shell(0, "sleep 1000")
	dir := place(t, m.dir, a, 1)
	if _, err := m.Start(ctx, dir, a); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v, want context.Canceled", err)
	}
	// The kernel ends the first process of its namespaces when the keeper has ended.
	eventually(t, "the end of what was started", func() bool { return len(processesOf(dir)) == 0 })
}

func TestStartTwice(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := shell(0, "sleep 1000")
	_, dir := m.start(a)
	if _, err := m.Start(t.Context(), dir, a); !errors.Is(err, os.ErrExist) {
		t.Errorf("second start: %v, want os.ErrExist", err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := shell(0, "sleep 1000")
	dir := place(t, m.dir, a, 1)
	p, err := m.Start(t.Context(), dir, a)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("Wait: %v, want ErrClosed", err)
	}
	if _, err := m.Adopt(t.Context(), dir); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("Adopt: %v, want ErrClosed", err)
	}
	m.open()
	q, err := m.Adopt(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(p.State(), q.State(), ignoreLimits); d != "" {
		t.Errorf("adopted (-before +after)\n%s", d)
	}
	end(t, q)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for keeper, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file",
		plain:                      "not executable",
		dir:                        "not executable",
	} {
		if _, _, err := openDir(dir, func(c *config) { c.Keeper = keeper }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("keeper %s: %v, want %q", keeper, err, want)
		}
	}
}
