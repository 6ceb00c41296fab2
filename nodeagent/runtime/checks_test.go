package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/strike"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// traceNew attaches to each process that comes up in its pid namespace as soon as it
// can, until there is a file "stop"; with the first it makes a file "caught". It has escaped when one of them has no filter,
// or has capabilities.
func traceNew([]string) error {
	goruntime.LockOSThread()
	caught := 0
	for next := os.Getpid() + 1; ; {
		if _, err := os.Stat("stop"); err == nil {
			return fmt.Errorf("caught %d", caught)
		}
		next = max(next, newest())
		for range 10000 {
			found := 0
			for pid := next; pid < next+32 && found == 0; pid++ {
				if unix.PtraceSeize(pid) == nil { // leaves no SIGSTOP behind
					found = pid
				}
			}
			if found == 0 {
				continue
			}
			next = found + 1
			_ = unix.PtraceInterrupt(found)
			for errors.Is(waitFor(found), unix.EINTR) {
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", found))
			_ = unix.PtraceDetach(found)
			if err != nil {
				continue
			}
			if caught++; caught == 1 {
				if err := os.WriteFile("caught", nil, 0o600); err != nil {
					return err
				}
			}
			if bytes.Contains(status, []byte("\nSeccomp:\t0\n")) || !bytes.Contains(status, []byte("\nCapPrm:\t0000000000000000\n")) {
				fmt.Printf("%s\n", status)
				return nil
			}
		}
	}
}

// newest returns the highest process number there is, 0 if it cannot be read. The one that attaches
// may not have run while more of them came up than it looks ahead.
func newest() (pid int) {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range list {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			pid = max(pid, n)
		}
	}
	return pid
}

func waitFor(pid int) error {
	_, err := unix.Wait4(pid, nil, unix.WALL, nil)
	return err
}

// putSelf puts the test binary into the work directory of the task in dir.
func putSelf(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(filepath.Dir(dir), "work", "attempt")
	if err := errors.Join(strike.Program(t.Context(), name+".new", b), os.Rename(name+".new", name)); err != nil {
		t.Fatal(err)
	}
}

// TestCommandsAreNotTraced: a task that attaches to each process that comes up
// beside it gets hold of commands, which are its own, and never of what becomes one.
func TestCommandsAreNotTraced(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needNamespaces(t)
	if m.Attributes()["isolation.seccomp"] != "true" {
		t.Skip("NOT TESTED: there are no seccomp filters")
	}
	m.Without(runtime.Scope) // it would catch none
	p, dir := m.start(shell(0, `until [ -x attempt ]; do sleep 0.01; done; echo up; exec ./attempt attempt trace`))
	putSelf(t, dir)
	says(t, dir, "up")
	work := filepath.Join(filepath.Dir(dir), "work")
	caught := func() bool { _, err := os.Stat(filepath.Join(work, "caught")); return err == nil }
	nap := "0.02"
	for i := 0; i < 120 || i < 240 && !caught(); i++ {
		if i == 120 {
			nap = "0.5" // the machine is busy: what lives for longer is caught more easily
		}
		if _, err := p.Run(t.Context(), []string{"sleep", nap}, patience); err != nil {
			t.Fatal(err)
		}
		if i%6 != 0 {
			continue
		}
		c := newCaller()
		go func() {
			_ = p.Exec(t.Context(), schema.ExecRequest{Command: []string{"sleep", nap}}, c)
		}()
		c.end(t)
	}
	if err := os.WriteFile(filepath.Join(work, "stop"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	got := said(t, dir)
	none := strings.Contains(got, "caught 0\n")
	if none && os.Getenv(slowEnv) != "" {
		t.Skip("NOT TESTED: where each processor is emulated, the task is too slow to catch any")
	}
	if !strings.Contains(got, "held: caught ") || none {
		t.Errorf("the task said\n%s\nwant that it has caught some, and none without a filter", got)
	}
}

// helperOf returns the process that runs the checks of m, 0 for none.
func helperOf(m *machine) int {
	for pid, command := range processesOf(m.dir) {
		if strings.Contains(command, " checks "+m.dir) {
			return pid
		}
	}
	return 0
}

// TestCheckHelperKilled: what was to be run while the process that runs checks is
// killed was not run, nothing of it is left, and soon there is another.
func TestCheckHelperKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needNamespaces(t)
	p, dir := m.start(shell(0, "echo up; exec sleep 1000"))
	says(t, dir, "up")
	ended := make(chan error, 1)
	go func() {
		_, err := p.Run(t.Context(), []string{"sh", "-c", `echo $$ >pid.new; mv pid.new pid; exec sleep 1000`}, patience)
		ended <- err
	}()
	eventually(t, "a command", func() bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(dir), "work", "pid"))
		return err == nil
	})
	first := helperOf(m)
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, nodeagent.ErrNotRun) {
		t.Errorf("a command whose keeper was killed: %v, want ErrNotRun", err)
	}
	eventually(t, "the end of the command", func() bool {
		_, err := p.Run(t.Context(), []string{"sh", "-c", `! kill -0 $(cat pid)`}, patience)
		return err == nil
	})
	if second := helperOf(m); second == 0 || second == first {
		t.Errorf("process %d runs checks, after %d was killed", second, first)
	}
}

// TestCheckAtLimit: a task that has as many processes as it may can be asked all the
// same.
func TestCheckAtLimit(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needNamespaces(t)
	a := shell(0, `for i in $(seq 19); do sleep 1000 & done; echo full; wait`)
	a.Job.Task.Limits = &schema.Limits{Processes: 20}
	p, dir := m.start(a)
	says(t, dir, "full")
	if _, err := p.Run(t.Context(), []string{"true"}, patience); err != nil {
		t.Error(err)
	}
}

// TestCheckHelperHidesHeap: what a check costs does not grow with what the process that
// runs checks holds: its memory is not copied into the children.
func TestCheckHelperHidesHeap(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newMachine(t)
	m.needNamespaces(t)
	p, dir := m.start(shell(0, "echo up; exec sleep 1000"))
	says(t, dir, "up")
	if _, err := p.Run(t.Context(), []string{"true"}, patience); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", helperOf(m)))
	if err != nil {
		t.Fatal(err)
	}
	copied, hidden, anonymous := 0, 0, 0 // KiB
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case f[0] == "Anonymous:":
			if anonymous, err = strconv.Atoi(f[1]); err != nil {
				t.Fatal(err)
			}
		case f[0] == "VmFlags:" && slices.Contains(f, "dc"): // do not copy
			hidden += anonymous
		case f[0] == "VmFlags:":
			copied += anonymous
		}
	}
	if copied > 512 || hidden < copied {
		t.Errorf("%d KiB are copied into each child, and %d are not", copied, hidden)
	}
}
