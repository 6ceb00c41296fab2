package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// TestRun: a command beside a task is what the task is: its user, its home, its
// environment, its cgroups; and how it ends is reported.
func TestRun(t *testing.T) {
	t.Parallel()
	testRun(t, newMachine(t))
}

func testRun(t *testing.T, m *machine) {
	t.Helper()
	a := shell(0, `for n in user pid mnt ipc uts net; do readlink /proc/self/ns/$n; done > namespaces; echo up; id -u > who; cat /proc/self/cgroup > groups; pwd > cwd; echo $HOME > home; exec sleep 100`)
	a.Job.Task.Env = map[string]string{"GREETING": "hello"}
	p, dir := m.start(a)
	says(t, dir, "up")
	eventually(t, "home", func() bool {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "work", "home"))
		return err == nil && len(b) > 0
	})
	for name, tt := range map[string]struct {
		script, output, err string
	}{
		"passes":          {"echo fine", "fine\n", ""},
		"same user":       {`[ "$(id -u)" = "$(cat who)" ]`, "", ""},
		"same home":       {`[ "$HOME" = "$(cat home)" ] && [ "$PWD" = "$(cat cwd)" ]`, "", ""},
		"same namespaces": {`for n in user pid mnt ipc uts net; do readlink /proc/self/ns/$n; done | cmp - namespaces`, "", ""},
		"no rights":       {`grep -q '^Cap\(Eff\|Prm\|Inh\):.*[1-9a-f]' /proc/self/status && exit 1; grep -q '^NoNewPrivs:.1' /proc/self/status`, "", ""},
		"environment":     {`echo $GREETING $MUSTER_JOB`, "hello job\n", ""},
		"fails":           {"echo no >&2; exit 3", "no\n", "exited with status 3"},
		"is killed":       {"kill -9 $$", "", "killed by SIGKILL"},
		"floods":          {"head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last", "last\n", ""},
		"no input":        {"cat", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if m.by == schema.Runsc && slices.Contains([]string{"same namespaces", "no rights", "is killed"}, name) {
				return // its kernel numbers namespaces for each process, and says nothing of no_new_privs; for the last, see TestRunsc
			}
			output, err := p.Run(t.Context(), []string{"/bin/sh", "-c", tt.script}, patience)
			if !strings.HasSuffix(output, tt.output) || len(output) > 4096 {
				t.Errorf("output of %d bytes ends %.80q, want %q", len(output), output[max(0, len(output)-80):], tt.output)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
	if _, err := p.Run(t.Context(), []string{"/no/such"}, patience); !errors.Is(err, runtime.ErrCommand) || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("a command that is not there: %v, want ErrCommand", err)
	}
	end(t, p)
	if _, err := p.Run(t.Context(), []string{"true"}, patience); !errors.Is(err, nodeagent.ErrNotRun) {
		t.Errorf("beside a task that has ended: %v, want ErrNotRun", err)
	}
}

// TestRunInCgroup: it is in the task's cgroups, or below.
func TestRunInCgroup(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "memory")
	p, dir := m.start(shell(0, `cat /proc/self/cgroup; echo done; exec sleep 100`))
	says(t, dir, "done")
	output, err := p.Run(t.Context(), []string{"cat", "/proc/self/cgroup"}, patience)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(said(t, dir)) {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, "job.0.7.1") {
			continue
		}
		found++
		_, below, _ := strings.Cut(output, line)
		below, _, _ = strings.Cut(below, "\n")
		if !strings.Contains(output, line) || below != "" && !strings.HasPrefix(below, "/exec-") {
			t.Errorf("the task is in %s, the command in\n%s", line, output)
		}
	}
	if found == 0 {
		t.Fatalf("the task is in no cgroup of its own:\n%s", said(t, dir))
	}
}

// TestRunTimeout: at its timeout all that a command has started is killed, what
// has left its session and its parent too, and the task is not.
func TestRunTimeout(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"waits":          `echo up; : >said; exec sleep SECONDS`,
		"double fork":    `(setsid sleep SECONDS & echo up; : >said) & wait; sleep SECONDS`,
		"ignores":        `trap "" TERM INT HUP; echo up; : >said; while :; do sleep SECONDS; done`,
		"without parent": `setsid sh -c 'setsid sh -c "echo up; : >said; exec sleep SECONDS" & exit 0'; sleep SECONDS`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			p, dir := m.start(shell(0, `exec sleep 300`))
			seconds := lasting()
			if output := late(t, p, dir, strings.ReplaceAll(script, "SECONDS", seconds)); output != "up\n" {
				t.Errorf("output %q, want what was written before the timeout", output)
			}
			if left := with(t, seconds); len(left) > 0 {
				t.Errorf("still there: %q", left)
			}
			if p.State().Exit != nil {
				t.Error("the task was killed with it")
			}
		})
	}
}

var lastingCalls atomic.Int64

// lasting returns how many seconds, at least some minutes, a process is to sleep by
// which it is found on the machine: its pid in the task's namespace means nothing there.
func lasting() string {
	return strconv.FormatInt(1000*int64(os.Getpid()+1)+lastingCalls.Add(1), 10)
}

// with returns the command lines that have the argument, or one with it inside.
func with(t *testing.T, argument string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatalf("no processes: %v", err)
	}
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte(argument)) {
			found = append(found, string(b))
		}
	}
	return found
}

// late runs a script that makes the file said once it has written its output, and
// would then go on for minutes, beside the task p in dir, and returns the output. It
// does so with longer and longer timeouts, until one comes after the file: those
// before strike while the command is started, where nothing is different.
func late(t *testing.T, p *runtime.Process, dir, script string) string {
	t.Helper()
	for timeout := time.Millisecond; timeout < patience; timeout *= 2 {
		began := time.Now()
		output, err := p.Run(t.Context(), []string{"/bin/sh", "-c", script}, timeout)
		if took := time.Since(began); took > timeout+patience {
			t.Errorf("took %s, with a timeout of %s", took, timeout)
		}
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nodeagent.ErrNotRun) {
			t.Fatalf("output %q, %v, want the deadline", output, err)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "work", "said")); err == nil {
			return output
		}
	}
	t.Fatal("the command never came to its output")
	return ""
}

// TestRunLeavesNothing: what a command leaves behind when it exits is killed, and
// the next one runs.
func TestRunLeavesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p, _ := m.start(shell(0, `exec sleep 300`))
	for range 3 {
		seconds := lasting()
		if _, err := p.Run(t.Context(), []string{"/bin/sh", "-c", `setsid sleep ` + seconds + ` >/dev/null 2>&1 &`}, patience); err != nil {
			t.Fatal(err)
		}
		if left := with(t, seconds); len(left) > 0 {
			t.Errorf("still there: %q", left)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := p.Run(ctx, []string{"sleep", "300"}, patience); !errors.Is(err, nodeagent.ErrNotRun) {
		t.Errorf("given up: %v, want ErrNotRun", err)
	}
}
