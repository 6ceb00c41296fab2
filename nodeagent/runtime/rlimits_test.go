package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestRlimits: each process of a task, and each command beside it, has the limits
// of its job, hard ones, and those that it may have without any.
func TestRlimits(t *testing.T) {
	t.Parallel()
	testRlimits(t, newMachine(t))
}

func testRlimits(t *testing.T, m *machine) {
	t.Helper()
	const ask = `echo $(ulimit -Sn) $(ulimit -Hn) $(ulimit -Sc) $(ulimit -Hc); (ulimit -n 5000) 2>/dev/null && echo raised; exit 0`
	for i, tt := range []struct {
		limits *schema.Limits
		want   string
	}{
		{nil, "4096 4096 0 0"},
		{&schema.Limits{Processes: 40, CoreBytes: 1 << 20}, "4096 4096 2048 2048"}, // in units of 512 bytes
		{&schema.Limits{Files: 300}, "300 300 0 0"},
	} {
		a := shell(i, ask)
		a.Job.Task.Limits = tt.limits
		p, dir := m.start(a)
		if e := wait(t, p); e.Code != 0 {
			t.Errorf("exit %v", e)
		}
		if got := strings.TrimSpace(said(t, dir)); got != tt.want {
			t.Errorf("%+v: limits %q, want %q", tt.limits, got, tt.want)
		}
	}
	a := assignment(8, "sleep", "1000")
	a.Job.Task.Limits = &schema.Limits{Files: 300}
	p, _ := m.start(a)
	if out, err := p.Run(t.Context(), []string{"/bin/sh", "-c", "ulimit -n"}, patience); err != nil || out != "300\n" {
		t.Errorf("beside the task: %q, %v", out, err)
	}
	end(t, p)
}

// TestRlimitsRefused: a machine that gives less than a task asks for does not
// start it with less.
func TestRlimitsRefused(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		t.Fatal(err)
	}
	most := parsed(t, strings.TrimSpace(string(b)))
	m := newMachine(t)
	a := assignment(0, "sleep", "1000")
	a.Job.Task.Limits = &schema.Limits{Files: most + 1}
	_, err = m.Start(t.Context(), place(t, m.dir, a, 1), a)
	if want := fmt.Sprintf("task.limits.files: the task asks for %d, and this machine gives ", most+1); !errors.Is(err, nodeagent.ErrTask) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want ErrTask with %s", err, want)
	}
}

// TestProcessesInPlace: the limit on processes changes while a task runs, down to
// fewer than it has: those stay, and there are no more.
func TestProcessesInPlace(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "pids")
	if m.Attributes()["isolation.cgroups"] == "none" {
		t.Skip("NOT TESTED: needs cgroups")
	}
	a := assignment(0, "sleep", "1000")
	p, dir := m.start(a)
	l := nodeagent.LimitsOf(a.Job)
	l.Processes = 20
	if err := p.Limit(l); err != nil || p.State().Limits != l {
		t.Fatalf("limits %+v, %v, want %+v", p.State().Limits, err, l)
	}
	if got := inForce(t, dir, "pids.max"); got != "20" {
		t.Errorf("pids.max is %s, want 20", got)
	}
	end(t, p)
}

// TestProcesses: two tasks of one user have each their own limit, by cgroup or by
// user namespace.
func TestProcesses(t *testing.T) {
	t.Parallel()
	testProcesses(t, newMachine(t))
}

func testProcesses(t *testing.T, m *machine) {
	t.Helper()
	m.needGroups(t, "pids")
	for i := range 2 {
		a := shell(i, `(n=0; while [ $n -lt 60 ]; do sleep 1000 & n=$((n+1)); echo $n; done) 2>/dev/null; echo ended; exec sleep 1000`)
		a.Job.Task.Limits = &schema.Limits{Processes: 30}
		_, dir := m.start(a)
		says(t, dir, "ended")
		lines := strings.Fields(said(t, dir))
		if n := len(lines) - 1; n < 20 || n > 40 {
			t.Errorf("task %d had %d processes with a limit of 30", i, n)
		}
	}
}
