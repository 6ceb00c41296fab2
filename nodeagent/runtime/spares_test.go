package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/strike"
	"golang.org/x/sys/unix"
)

// withSpare has keepers wait for tasks, as an agent has.
func withSpare(c *config) { c.Spare = true }

// spares are the pids of the keepers that wait for a task of m.
func (m *machine) spares() (pids []int) {
	for pid, command := range processesOf(m.dir) {
		if strings.Contains(command, " spare "+m.dir+" ") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// spare returns the keeper that waits for a task of m, when it does so.
func (m *machine) spare() (pid int) {
	m.t.Helper()
	eventually(m.t, "a keeper that waits", func() bool {
		for _, pid = range m.spares() {
			threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/syscall") // any of them has it
			if err != nil {
				m.t.Fatal(err)
			}
			// It reads what the agent sends.
			if slices.ContainsFunc(threads, func(name string) bool {
				b, err := os.ReadFile(name)
				return err == nil && strings.HasPrefix(string(b), strconv.Itoa(unix.SYS_READ)+" 0x3 ")
			}) {
				return true
			}
		}
		return false
	})
	return pid
}

// TestSpare: from the second start on a keeper waits for the task. It is one as any other, also for
// who finds it in the process table, and no task's before.
func TestSpare(t *testing.T) {
	t.Parallel()
	m := newMachine(t, withSpare)
	if pids := m.spares(); len(pids) > 0 {
		t.Errorf("%d wait before the first start", len(pids))
	}
	_, first := m.start(shell(0, "echo up; sleep 1000"))
	waits := m.spare()
	found := m.running()
	if len(found) != 1 || found[0].Dir != first {
		t.Errorf("keepers of tasks are %v, want one, of %s", found, first)
	}
	p, dir := m.start(shell(1, "echo up; sleep 1000"))
	says(t, dir, "up")
	if of := keeperOf(t, dir); of != waits {
		t.Errorf("its keeper is %d, want %d, which waited", of, waits)
	}
	for _, k := range m.running() {
		if k.PID == waits && k.Dir != dir {
			t.Errorf("it is taken for the keeper of %s", k.Dir)
		}
	}
	if len(m.running()) != 2 {
		t.Errorf("keepers of tasks are %v, want 2", m.running())
	}
	if next := m.spare(); next == waits {
		t.Error("the next that waits is the same")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "keeper.log")); err != nil || len(b) > 0 {
		t.Errorf("its log: %q, %v", b, err)
	}
	if err := unix.Kill(waits, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, p); e.Message != "its keeper was killed, and the task with it" {
		t.Errorf("with its keeper killed: %v", e)
	}
	orphansGone(t, dir)
}

// TestSpareClosed: none waits for a runtime that is closed, and the next one adopts what began with one
// that waited.
func TestSpareClosed(t *testing.T) {
	t.Parallel()
	m := newMachine(t, withSpare)
	p, _ := m.start(shell(0, "sleep 1000"))
	end(t, p)
	m.spare()
	a := shell(1, "sleep 1000")
	if _, err := m.Start(t.Context(), place(t, m.dir, a, 1), a); err != nil {
		t.Fatal(err)
	}
	if err := m.Runtime.Close(); err != nil {
		t.Error(err)
	}
	if pids := m.spares(); len(pids) > 0 {
		t.Errorf("%d wait for a runtime that is closed", len(pids))
	}
	m.open()
	q, _ := m.adopt(1)
	if e := end(t, q); e.Signal != "SIGKILL" {
		t.Errorf("ended with %v", e)
	}
}

// running returns the keepers of tasks.
func (m *machine) running() []keeper.Running {
	m.t.Helper()
	found, err := keeper.Scan(filepath.Join(m.dir, "tasks"))
	if err != nil {
		m.t.Fatal(err)
	}
	return found
}

// TestSpareKilled: without the one that waited a task starts as ever, and the next waits.
func TestSpareKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t, withSpare)
	m.start(shell(0, "sleep 1000"))
	pid := m.spare()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of all its threads, by when what it had open is closed", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return true
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from the third on of proc_pid_stat(5)
		return f[0] == "Z" && f[17] == "1"
	})
	_, dir := m.start(shell(1, "echo up; sleep 1000"))
	says(t, dir, "up")
	m.spare()
}

// TestSpareReplaced: a keeper of a program that was replaced is not the next task's.
func TestSpareReplaced(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(t.TempDir(), "muster-keeper")
	install := func() {
		if out, err := exec.Command("cp", "--remove-destination", keeperExe, exe).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	install()
	m := newMachine(t, withSpare, func(c *config) { c.Keeper = exe })
	m.start(shell(0, "sleep 1000"))
	old := m.spare()
	install()
	_, dir := m.start(shell(1, "sleep 1000"))
	if of := keeperOf(t, dir); of == old {
		t.Error("its keeper is of the old program")
	}
	if slices.Contains(m.spares(), old) {
		t.Error("the old one waits on")
	}
}

// TestSpareOfOldKeeper: a program that knows of no spares is a keeper all the same.
func TestSpareOfOldKeeper(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(t.TempDir(), "muster-keeper")
	script := "#!/bin/sh\ncase $1 in spare) exit 2;; esac\nexec " + keeperExe + " \"$@\"\n"
	if err := errors.Join(strike.Program(t.Context(), exe, []byte(script)), os.Chmod(filepath.Dir(exe), 0o755)); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, withSpare, func(c *config) { c.Keeper = exe })
	for i := range 3 {
		_, dir := m.start(shell(i, "echo up; sleep 1000"))
		says(t, dir, "up")
	}
}

// TestSpareWithoutAgent: a keeper that waits ends with its agent, however that ends, and leaves nothing.
func TestSpareWithoutAgent(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := m.startAgent(1, "echo run; trap 'exit 9' TERM; while :; do sleep 0.01; done")
	a.line(t)
	pid := m.spare()
	a.kill()
	eventually(t, "the end of the one that waited", func() bool { return !slices.Contains(m.spares(), pid) })
	p, dir := m.adopt(0)
	m.judge(p, dir)
}
