package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/strike"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/schema"
)

// The test binary is also the agent, the keeper and flock, under those names.
func TestMain(m *testing.M) {
	switch {
	case keeper.IsCall(os.Args[1:]): // by name or, in a sandbox, by /proc/self/exe
		os.Exit(keeper.Main(os.Args[1:]))
	case filepath.Base(os.Args[0]) == "muster-agent":
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	case filepath.Base(os.Args[0]) == "flock": // not in every busybox; flock -n 9 is all that is asked of it
		switch err := syscall.Flock(9, syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			os.Exit(1)
		case err != nil:
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// master is as much of a master as an agent needs.
type master struct {
	server *link.Server

	mu     sync.Mutex // guards what follows
	epoch  uint64
	info   schema.MachineInfo // of the newest connection
	report schema.Report
	pushed uint64 // version of view
	view   []schema.Assignment
}

func (m *master) Join(_ context.Context, info schema.MachineInfo) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	m.info = info
	if m.pushed > 0 {
		m.server.Push("m1", schema.View{Epoch: m.epoch, Version: m.pushed, Assignments: m.view})
	}
	return m.epoch, nil
}

// push sends a view, in later sessions too.
func (m *master) push(version uint64, view []schema.Assignment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pushed, m.view = version, view
	m.server.Push("m1", schema.View{Epoch: m.epoch, Version: version, Assignments: view})
}

// version returns that of the agent that joined last.
func (m *master) version() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.info.AgentVersion
}

// attributes returns those of the agent that joined last.
func (m *master) attributes() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.info.Attributes
}

func (m *master) Report(_ context.Context, _ string, _ uint64, r schema.Report) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report = r
	return nil
}

func (*master) Content(string, uint64, []schema.Digest) {}

func (*master) Usage(context.Context, uint64, *schema.MachineUsage) error { return nil }

func (*master) Leave(string, uint64) {}

// cell is a master and an agent's place.
type cell struct {
	t       testing.TB
	dir     string
	master  *master
	version uint64
	agent   *exec.Cmd
	stderr  *output
}

// output can be read while a process writes to it.
type output struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func newCell(t testing.TB) *cell {
	t.Helper()
	return newCellPulling(t, 20*time.Millisecond)
}

// newCellPulling is newCell with a master that asks for reports so often; 0: as it
// does by default.
func newCellPulling(t testing.TB, every time.Duration) *cell {
	t.Helper()
	dir, err := os.MkdirTemp("", "m") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"muster-agent", keeperName} {
		if err := strike.Program(t.Context(), filepath.Join(dir, name), b); err != nil {
			t.Fatal(err)
		}
	}
	c := &cell{t: t, dir: dir, master: &master{}}
	c.master.server = link.New(link.Config{Cell: "local", Master: c.master, PullEvery: every, Secrets: sealer{}, Log: slog.New(slog.DiscardHandler)})
	if err := os.Mkdir(c.path("link"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := local.Listen(c.path("link/sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.master.server.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

func (c *cell) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cell) command(args ...string) *exec.Cmd {
	args = append([]string{"--cell", "local", "--name", "m1", "--master", "unix:" + c.path("link/sock"), "--state-dir", c.path("state")}, args...)
	return exec.Command(c.path("muster-agent"), args...)
}

func (c *cell) start(args ...string) {
	c.t.Helper()
	c.agent, c.stderr = c.command(append([]string{"--metrics-listen", "127.0.0.1:0"}, args...)...), &output{}
	c.agent.Stderr = c.stderr
	if err := c.agent.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// signal sends s to the agent and returns its exit status, -1 for a signal.
func (c *cell) signal(s os.Signal) int {
	c.t.Helper()
	if err := c.agent.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
	_ = c.agent.Wait()
	return c.agent.ProcessState.ExitCode()
}

func (c *cell) push(view ...schema.Assignment) {
	c.version++
	c.master.push(c.version, view)
}

// until waits for a report of the newest view that satisfies ok.
func (c *cell) until(what string, ok func([]schema.TaskStatus) bool) []schema.TaskStatus {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c.master.mu.Lock()
		r := c.master.report
		c.master.mu.Unlock()
		if r.View == c.version && ok(r.Tasks) {
			return r.Tasks
		}
		if time.Now().After(end) {
			b, _ := json.MarshalIndent(r.Tasks, "", " ")
			c.t.Fatalf("not within 30 s: %s\nreport of view %d: %s\nagent: %s", what, r.View, b, c.stderr)
		}
	}
}

func (c *cell) task(index int, generation uint64) schema.Assignment {
	job := &schema.Job{
		Name: "web", User: "u", Cell: "local", Kind: schema.Service, Tasks: 3,
		Task: schema.TaskSpec{
			Process:      schema.Process{Command: []string{"/bin/sh", "-c", "echo $(MUSTER_JOB) $(MUSTER_TASK_INDEX) $(MUSTER_PORT_HTTP); exec sleep 1000"}},
			Resources:    schema.TaskResources{Resources: schema.Resources{CPUMilli: 100, RAMBytes: 64 << 20, DiskBytes: 1 << 20}, Ports: []string{"http"}},
			GraceSeconds: 5,
		},
	}
	name := job.ID().Task(index)
	return schema.Assignment{Task: name, Generation: generation, Data: schema.DigestOf(job), Job: job, Ports: schema.PortsOf(map[string]int{"http": 29_900 + index})}
}

func allRunning(n int) func([]schema.TaskStatus) bool {
	return func(list []schema.TaskStatus) bool {
		for _, s := range list {
			if s.State != schema.Running {
				return false
			}
		}
		return len(list) == n
	}
}

// alive reports whether a process with that pid is there, and no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func pids(list []schema.TaskStatus) string {
	var b strings.Builder
	for _, s := range list {
		fmt.Fprintf(&b, "%s %d %d %s; ", s.Task.Short(), s.PID, s.Incarnation, s.StartedAt.UTC())
	}
	return b.String()
}

// One agent after the other holds the same tasks; the last stops them.
func TestAgentLives(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.start()
	c.push(c.task(0, 1), c.task(1, 2))
	first := c.until("two run", allRunning(2))
	c.checkLogs()
	c.checkMetrics()
	c.checkSecond()

	if code := c.signal(syscall.SIGKILL); code != -1 {
		t.Errorf("after SIGKILL: exit %d", code)
	}
	c.start()
	c.push(c.task(0, 1), c.task(1, 2))
	if got := c.until("two run", allRunning(2)); pids(got) != pids(first) {
		t.Errorf("after SIGKILL of the agent:\n%s\nwant\n%s", pids(got), pids(first))
	}
	if code := c.signal(syscall.SIGTERM); code != 0 || !alive(first[0].PID) || !alive(first[1].PID) {
		t.Errorf("after SIGTERM: exit %d, tasks alive %t %t\n%s", code, alive(first[0].PID), alive(first[1].PID), c.stderr)
	}
	c.start()
	c.push(c.task(0, 1), c.task(1, 2))
	c.until("two run", allRunning(2))
	if code := c.signal(syscall.SIGINT); code != 0 || alive(first[0].PID) || alive(first[1].PID) {
		t.Errorf("after SIGINT: exit %d, tasks alive %t %t\n%s", code, alive(first[0].PID), alive(first[1].PID), c.stderr)
	}
	c.start()
	c.push(c.task(0, 1), c.task(1, 2))
	again := c.until("two run as second incarnations", func(list []schema.TaskStatus) bool {
		return allRunning(2)(list) && list[0].Incarnation == 2 && list[1].Incarnation == 2
	})
	c.push()
	c.until("two are superseded", func(list []schema.TaskStatus) bool {
		return len(list) == 2 && list[0].State == schema.Dead && list[1].State == schema.Dead && list[0].End.Kind == schema.CauseSuperseded
	})
	if alive(again[0].PID) || alive(again[1].PID) {
		t.Error("a superseded task is alive")
	}
	if code := c.signal(syscall.SIGINT); code != 0 {
		t.Errorf("with nothing to stop: exit %d\n%s", code, c.stderr)
	}
}

// checkLogs reads a task's output through the link: it runs, and may not have written
// it yet.
func (c *cell) checkLogs() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	r, err := c.master.server.Logs(ctx, "m1", schema.LogRequest{Task: c.task(1, 2).Task, Tail: -1, Follow: true})
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	line, err := bufio.NewReader(r).ReadString('\n')
	if want := "web 1 29901\n"; err != nil || line != want {
		c.t.Errorf("log %q, %v, want %q", line, err, want)
	}
}

// checkMetrics reads /metrics where the agent says that it is.
func (c *cell) checkMetrics() {
	c.t.Helper()
	m := regexp.MustCompile(`address=(http://127\.0\.0\.1:\d+/metrics)`).FindStringSubmatch(c.stderr.String())
	if m == nil {
		c.t.Fatalf("no address of the metrics in %s", c.stderr)
	}
	resp, err := http.Get(m[1])
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	for _, want := range []string{`muster_agent_tasks{state="running"} 2`, "muster_agent_start_seconds_count 2", "process_resident_memory_bytes"} {
		if !strings.Contains(string(b), want) {
			c.t.Errorf("metrics lack %q:\n%s", want, b)
		}
	}
}

// checkSecond starts a second agent on the same state directory.
func (c *cell) checkSecond() {
	c.t.Helper()
	second := c.command()
	b, _ := second.CombinedOutput()
	want := fmt.Sprintf("muster-agent: state directory %s: another agent uses it (pid %d)\n", c.path("state"), c.agent.Process.Pid)
	if second.ProcessState.ExitCode() != exitFailed || string(b) != want {
		c.t.Errorf("second agent: exit %d, %q, want %q", second.ProcessState.ExitCode(), b, want)
	}
}

// An agent that is killed at any moment of a start or later loses nothing and
// doubles nothing.
func TestAgentIsKilledAtRandom(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.start()
	rng := rand.New(rand.NewPCG(1, 2))
	view := []schema.Assignment{c.task(0, 1), c.task(1, 2), c.task(2, 3)}
	for range 20 {
		c.push(view...)
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		c.signal(syscall.SIGKILL)
		c.start()
	}
	c.push(view...)
	list := c.until("three run", allRunning(3))
	for _, s := range list {
		if !alive(s.PID) {
			t.Errorf("%s: no process %d", s.Task, s.PID)
		}
	}
	// The kernel shows a command a moment after its exec has begun.
	n := c.sleepers()
	for end := time.Now().Add(time.Minute); n != 3 && time.Now().Before(end); n = c.sleepers() {
		time.Sleep(10 * time.Millisecond)
	}
	if n != 3 {
		t.Errorf("%d processes of the tasks, want 3", n)
	}
	if code := c.signal(syscall.SIGINT); code != 0 {
		t.Errorf("exit %d\n%s", code, c.stderr)
	}
	if n := c.sleepers(); n != 0 {
		t.Errorf("%d processes of the tasks are left", n)
	}
}

// sleepers counts the tasks' processes of this test by their environment.
func (c *cell) sleepers() (n int) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, d := range dirs {
		cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(d, "environ"))
		if bytes.HasPrefix(cmd, []byte("sleep\x001000")) && bytes.Contains(env, []byte("MUSTER_PORT_HTTP=2990")) && bytes.Contains(env, []byte(c.dir)) {
			n++
		}
	}
	return n
}
