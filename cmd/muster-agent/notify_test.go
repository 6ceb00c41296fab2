package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// manager is a service manager's socket, and the lines that it has received.
type manager struct {
	path     string
	mu       sync.Mutex // guards what follows
	received []string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{path: filepath.Join(dir, "notify")}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 4096); ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.received = append(m.received, strings.Split(string(b[:n]), "\n")...)
			m.mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done; _ = os.RemoveAll(dir) })
	return m
}

func (m *manager) has(line string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.received, line)
}

func (m *manager) wait(t *testing.T, c *cell, line string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !m.has(line); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.mu.Lock()
			defer m.mu.Unlock()
			t.Fatalf("the service manager did not receive %q within 30 s, but %q\n%s", line, m.received, c.stderr)
		}
	}
}

// build makes an agent of a version, in the place of the one there is: beside it
// and then renamed, as an upgrade does.
func (c *cell) build(version string) {
	c.t.Helper()
	next := c.path("next")
	b, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X main.version="+version, "-o", next, ".").CombinedOutput()
	if err != nil {
		c.t.Fatalf("go build: %v\n%s", err, b)
	}
	if err := os.Rename(next, c.path("muster-agent")); err != nil {
		c.t.Fatal(err)
	}
}

// supervised starts the agent as systemd would.
func (c *cell) supervised(m *manager) {
	c.t.Helper()
	c.agent, c.stderr = c.command(), &output{}
	c.agent.Stderr = c.stderr
	c.agent.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=300000")
	if err := c.agent.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// An upgrade as systemd does it with KillMode=process: the agent is asked to stop,
// and the next version finds the same processes. The service manager is notified of all
// of it.
func TestUpgradeUnderSystemd(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command: another version of the agent cannot be built")
	}
	c := newCell(t)
	c.build("one")
	first := newManager(t)
	c.supervised(first)
	first.wait(t, c, "READY=1")
	view := []schema.Assignment{c.task(0, 1), c.task(1, 2), c.task(2, 3)}
	c.push(view...)
	before := c.until("three run", allRunning(3))
	first.wait(t, c, "WATCHDOG=1")
	first.wait(t, c, "STATUS=linked to the master, 3 tasks run")
	if v := c.master.version(); v != "one" {
		t.Errorf("version %q, want one", v)
	}
	for _, s := range before {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.PID))
		if err != nil || strings.Contains(string(env), "NOTIFY_SOCKET") || strings.Contains(string(env), "WATCHDOG") {
			t.Errorf("environment of %s: %q, %v", s.Task.Short(), env, err)
		}
	}
	c.build("two")
	if code := c.signal(syscall.SIGTERM); code != 0 || !first.has("STOPPING=1") {
		t.Errorf("SIGTERM: exit %d, received %q\n%s", code, first.received, c.stderr)
	}
	second := newManager(t)
	c.supervised(second)
	second.wait(t, c, "READY=1")
	c.push(view...)
	after := c.until("three run", allRunning(3))
	if pids(after) != pids(before) {
		t.Errorf("after the upgrade:\n%s\nwant\n%s", pids(after), pids(before))
	}
	if v := c.master.version(); v != "two" {
		t.Errorf("version %q, want two", v)
	}
	if code := c.signal(syscall.SIGINT); code != 0 || !second.has("STOPPING=1") {
		t.Errorf("SIGINT: exit %d, received %q\n%s", code, second.received, c.stderr)
	}
}

// A service manager that is not there is a mistake of whoever says it is; one that
// goes away is none.
func TestServiceManagerThatIsNotThere(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	for address, want := range map[string]string{
		"/nowhere/at/all": "NOTIFY_SOCKET: dial unixgram /nowhere/at/all", "vsock:1:2": `NOTIFY_SOCKET "vsock:1:2": want a path`,
	} {
		cmd := c.command()
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+address)
		if b, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(string(b), want) {
			t.Errorf("%s: exit %d, %q, want %q", address, cmd.ProcessState.ExitCode(), b, want)
		}
	}
	m := newManager(t)
	c.supervised(m)
	m.wait(t, c, "READY=1")
	if err := os.Remove(m.path); err != nil {
		t.Fatal(err)
	}
	c.push(c.task(0, 1))
	c.until("one runs", allRunning(1))
	if code := c.signal(syscall.SIGINT); code != 0 {
		t.Errorf("exit %d\n%s", code, c.stderr)
	}
}

// The unit is what systemd takes, where systemd is there to say so, and what the
// agent rests on is in it.
func TestUnit(t *testing.T) {
	t.Parallel()
	const unit = "systemd/muster-agent.service"
	b, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Type=notify", "KillMode=process", "Delegate=yes", "Restart=always", "TasksMax=infinity"} {
		if !slices.Contains(strings.Split(string(b), "\n"), line) {
			t.Errorf("%s lacks %s", unit, line)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze: the unit is not verified")
	}
	// It wants the binary to be there.
	dir := t.TempDir()
	here := strings.ReplaceAll(string(b), "/usr/local/bin/muster-agent", "/bin/true")
	if err := os.WriteFile(filepath.Join(dir, "muster-agent.service"), []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", filepath.Join(dir, "muster-agent.service")).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// In tenths. The unit says what keeps it from being less.
	const exposure = "--threshold=67"
	if out, err := exec.Command(analyze, "security", "--offline=true", exposure, unit).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security %s: %v\n%s", exposure, err, out)
	}
}

// What would give the agent a mount namespace of its own keeps the next one from the
// mounts of tasks that run; what changes processes for good changes tasks too.
func TestUnitLeavesTasksAlone(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("systemd/muster-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		option, _, _ := strings.Cut(line, "=")
		for _, never := range []string{
			"BindPaths", "BindReadOnlyPaths", "InaccessiblePaths", "MemoryDenyWriteExecute", "Private", "ProcSubset",
			"ProtectControlGroups", "ProtectHome", "ProtectKernel", "ProtectProc", "ProtectSystem", "ReadOnlyPaths", "ReadWritePaths", "RestrictNamespaces", "RestrictSUIDSGID", "RootDirectory", "RootImage", "TemporaryFileSystem", "UMask", "LockPersonality",
		} {
			if strings.HasPrefix(option, never) {
				t.Errorf("the unit has %s", strings.TrimSpace(line))
			}
		}
	}
}

// Labels are read again when their file has changed, and the master receives them;
// what is wrong in it changes nothing.
func TestLabelsAreReadAgain(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	file := c.path("labels")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rack=r1\n")
	c.agent, c.stderr = c.command("--labels-file", file, "--label", "power=p1"), &output{}
	c.agent.Stderr = c.stderr
	if err := c.agent.Start(); err != nil {
		t.Fatal(err)
	}
	c.push(c.task(0, 1))
	before := c.until("one runs", allRunning(1))
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within 30 s: %s\n%s", what, c.stderr)
			}
		}
	}
	has := func(rack string) func() bool {
		return func() bool { a := c.master.attributes(); return a["rack"] == rack && a["power"] == "p1" }
	}
	until("rack r1", has("r1"))
	write("rack=r1\nno label\n")
	until("a warning", func() bool { return strings.Contains(c.stderr.String(), "the labels stay as they were") })
	write("rack=r2\n")
	until("rack r2", has("r2"))
	if got := c.until("one runs", allRunning(1)); pids(got) != pids(before) {
		t.Errorf("with other labels: %s, want %s", pids(got), pids(before))
	}
	if code := c.signal(syscall.SIGINT); code != 0 {
		t.Errorf("exit %d\n%s", code, c.stderr)
	}
}
