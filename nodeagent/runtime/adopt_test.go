package runtime_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime"
	"golang.org/x/sys/unix"
)

// An agent's keeper, what its tasks run, and how many of them it starts.
const (
	keeperEnv = "MUSTER_TEST_KEEPER"
	scriptEnv = "MUSTER_TEST_SCRIPT"
	countEnv  = "MUSTER_TEST_COUNT"
)

// inAllocPrefix before a script has it run inside an alloc, which is started
// first.
const inAllocPrefix = "# in an alloc\n"

// agent is a process that starts tasks, says so, and does nothing else.
func agent(dir string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, r, err := openDir(dir, func(c *config) { c.Keeper, c.Spare = os.Getenv(keeperEnv), true })
	if err != nil {
		return fail(err)
	}
	count, err := strconv.Atoi(os.Getenv(countEnv))
	if err != nil {
		return fail(err)
	}
	fmt.Println("up")
	script, inAlloc := strings.CutPrefix(os.Getenv(scriptEnv), inAllocPrefix)
	if inAlloc {
		gen := filepath.Join(dir, "tasks", "local", "ada", "pair", "0", "5")
		if err := os.MkdirAll(gen, 0o711); err != nil {
			return fail(err)
		}
		if _, err := r.Start(context.Background(), filepath.Join(gen, "1"), pair(0, 64)); err != nil {
			return fail(err)
		}
	}
	for i := range count {
		a := shell(i, script)
		if inAlloc {
			a = inside(pair(0, 64), a)
		}
		gen := filepath.Join(dir, "tasks", "local", "ada", "job", strconv.Itoa(i), "7")
		if err := os.MkdirAll(gen, 0o711); err != nil {
			return fail(err)
		}
		p, err := r.Start(context.Background(), filepath.Join(gen, "1"), a)
		if err != nil {
			return fail(err)
		}
		fmt.Println(p.State().PID)
	}
	select {}
}

// process is an agent of its own.
type process struct {
	*exec.Cmd
	lines *bufio.Scanner
}

// startAgent starts an agent on m's directory.
func (m *machine) startAgent(count int, script string) *process {
	m.t.Helper()
	return m.startAgentWith(keeperExe, count, script)
}

// startAgentWith starts an agent that has another keeper.
func (m *machine) startAgentWith(keeper string, count int, script string) *process {
	m.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe)}
	p.Env = append(os.Environ(), agentEnv+"="+m.dir, keeperEnv+"="+keeper, scriptEnv+"="+script, countEnv+"="+strconv.Itoa(count))
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(p.kill)
	p.line(m.t)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// line returns the next line that p writes.
func (p *process) line(t testing.TB) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the agent has ended: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// adopt adopts incarnation 1 of task i.
func (m *machine) adopt(i int) (*runtime.Process, string) {
	m.t.Helper()
	dir := place(m.t, m.dir, shell(i, ""), 1)
	p, err := m.Adopt(m.t.Context(), dir)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { end(m.t, p) })
	return p, dir
}

func TestAgentKilled(t *testing.T) {
	t.Parallel()
	const tasks = 6
	m := newMachine(t)
	a := m.startAgent(tasks, `trap "exit 1$MUSTER_TASK_INDEX" TERM; [ $MUSTER_TASK_INDEX = 0 ] && exit 40; echo up; while :; do sleep 0.01; done`)
	var pids []int
	for range tasks {
		pid, err := strconv.Atoi(a.line(t))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	a.kill()
	first, dir := m.adopt(0)
	if e := wait(t, first); e.Code != 40 {
		t.Errorf("task that ended with no agent: %v, want status 40", e)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.new")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	for i := 1; i < tasks; i++ {
		p, dir := m.adopt(i)
		says(t, dir, "up")
		if got := p.State(); got.PID != pids[i] || got.Boot != m.host.Boot() || got.Exit != nil {
			t.Errorf("task %d: adopted %+v, want pid %d", i, got, pids[i])
		}
		if err := p.Signal(false); err != nil {
			t.Fatal(err)
		}
		if e := wait(t, p); e.Code != 10+i {
			t.Errorf("task %d: %v, want status %d", i, e, 10+i)
		}
		again, err := m.Adopt(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		wait(t, again)
		if d := cmp.Diff(p.State(), again.State(), ignoreLimits); d != "" {
			t.Errorf("task %d: adopted again after its end (-first +again)\n%s", i, d)
		}
	}
}

// TestAgentKilledAnywhere kills an agent at random moments of its starts. What
// the next one finds runs once and is reported as it is.
func TestAgentKilledAnywhere(t *testing.T) {
	t.Parallel()
	const tasks = 1000 // more than it can start
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	started := 0
	for range rounds {
		m := newMachine(t)
		a := m.startAgent(tasks, `echo run; trap "exit 9" TERM; while :; do sleep 0.01; done`)
		for range rand.IntN(3) {
			a.line(t)
		}
		time.Sleep(rand.N(20 * time.Millisecond))
		a.kill()
		dirs, err := filepath.Glob(filepath.Join(m.dir, "tasks/local/ada/job/*/7/1"))
		if err != nil {
			t.Fatal(err)
		}
		started += len(dirs)
		for _, dir := range dirs {
			p, err := m.Adopt(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			m.judge(p, dir)
		}
		// A keeper that comes after the verdict ends by itself.
		eventually(t, "the end of the last process", func() bool { return len(processesOf(m.dir)) == 0 })
		for _, dir := range dirs {
			ranOnce(t, dir)
		}
	}
	t.Logf("%d starts in %d agents' lives", started, rounds)
}

// judge checks an incarnation whose agent was killed at some moment of its
// start.
func (m *machine) judge(p *runtime.Process, dir string) {
	m.t.Helper()
	if p.State().PID != 0 {
		says(m.t, dir, "run")
		if err := p.Signal(false); err != nil {
			m.t.Error(err)
		}
		e := wait(m.t, p)
		// The signal may come before the script has set its trap.
		if e.Code != 9 && e.Signal != "SIGTERM" {
			m.t.Errorf("adopted in %s: %v, want status 9", dir, e)
		}
	}
	wait(m.t, p)
}

// ranOnce checks that what ran in dir ran once, and that its end knows of it.
func ranOnce(t *testing.T, dir string) {
	t.Helper()
	out, _ := os.ReadFile(filepath.Join(dir, keeper.StdoutFile)) // not there: it never ran
	end, err := os.ReadFile(filepath.Join(dir, keeper.ExitFile))
	if err != nil {
		t.Error(err)
	}
	if n := strings.Count(string(out), "run"); n > 1 || n == 1 && strings.Contains(string(end), "never started") {
		t.Errorf("%s ran %d times, and ended: %s", dir, n, end)
	}
}

// keeperOf returns the pid of the keeper of dir.
func keeperOf(t testing.TB, dir string) int {
	t.Helper()
	for pid, command := range processesOf(filepath.Dir(dir)) {
		if strings.HasSuffix(strings.TrimSpace(command), dir) && !strings.Contains(command, " init ") {
			return pid
		}
	}
	t.Fatalf("no keeper of %s", dir)
	return 0
}

// TestFirstKilled: the kernel then kills all of the namespace, and the keeper
// says why.
func TestFirstKilled(t *testing.T) {
	t.Parallel()
	testFirstKilled(t, newMachine(t))
}

func testFirstKilled(t *testing.T, m *machine) {
	t.Helper()
	m.needNamespaces(t)
	p, dir := m.start(shell(0, escape+"echo up; sleep 1000"))
	says(t, dir, "up")
	for pid, command := range processesOf(filepath.Dir(dir)) {
		if strings.Contains(command, " init ") {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if e := wait(t, p); e.Signal != "SIGKILL" || e.Message != "the first process of its pid namespace was killed, and the task with it" {
		t.Errorf("exit %v", e)
	}
	if left := processesOf(filepath.Dir(dir)); len(left) > 0 {
		t.Errorf("live on: %v", left)
	}
}

// orphansGone: with its keeper killed, nothing of the task in dir lives on. The first
// process of its namespaces, which is in no cgroup, was sent SIGKILL by the kernel, and
// ends as soon as it is given a processor.
func orphansGone(t testing.TB, dir string) {
	t.Helper()
	left := processesOf(filepath.Dir(dir))
	maps.DeleteFunc(left, func(_ int, command string) bool { return strings.Contains(command, " init ") })
	if len(left) > 0 {
		t.Errorf("live on: %v", left)
	}
	eventually(t, "the end of the first process", func() bool { return len(processesOf(filepath.Dir(dir))) == 0 })
}

func TestKeeperKilled(t *testing.T) {
	t.Parallel()
	testKeeperKilled(t, newMachine(t))
}

func testKeeperKilled(t *testing.T, m *machine) {
	t.Helper()
	// With its environment: it is what finds it where there is nothing else.
	script := `trap "" TERM; ` + strings.ReplaceAll(escape, "env -i ", "") + `echo up; while :; do sleep 0.05; done`
	for i := range 2 {
		a := shell(i, script)
		dir := place(t, m.dir, a, 1)
		p, err := m.Start(t.Context(), dir, a)
		if err != nil {
			t.Fatal(err)
		}
		says(t, dir, "up")
		if i == 1 { // with no agent to see it
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Kill(keeperOf(t, dir), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			m.open()
			p, _ = m.adopt(i)
		}
		if e := wait(t, p); e.Code != -1 || e.Signal != "" || e.Message != "its keeper was killed, and the task with it" {
			t.Errorf("exit %v", e)
		}
		orphansGone(t, dir)
	}
}

func TestAdoptOddDirectories(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for i, c := range []struct {
		files map[string]string
		want  string
	}{
		{nil, "it was never started"},
		{map[string]string{"spec.json": "{"}, "it was never started"},
		{map[string]string{"spec.json": "", "lock": ""}, "its spec.json was damaged: it is empty"},
		{map[string]string{"spec.json": `{"boot":"` + m.host.Boot() + `","command":["x"]}`}, "it was never started"},
		{map[string]string{"spec.json": `{"boot":"` + m.host.Boot() + `","command":["x"]}`, "lock": ""}, "its keeper was killed while it started"},
		{map[string]string{"spec.json": `{"boot":"old","command":["x"]}`}, "the machine was restarted"},
		{map[string]string{
			"spec.json":  `{"boot":"old","command":["x"]}`,
			"state.json": `{"boot":"old","keeper":{"pid":1,"start":1},"task":{"pid":` + strconv.Itoa(os.Getpid()) + `,"start":1}}`,
		}, "the machine was restarted"},
	} {
		dir := place(t, m.dir, shell(i, ""), 1)
		if err := os.Mkdir(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := m.Adopt(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		// Known at once: nothing may be decided as if it lived. What never
		// ran belongs to no boot, which makes it nobody's fault.
		if inc := p.State(); inc.Exit == nil || (inc.Boot == "") != (c.want == "it was never started" || c.files["spec.json"] == "") {
			t.Errorf("%v: adopted as %+v", c.files, inc)
		}
		if e := wait(t, p); e.Code != -1 || e.Signal != "" || e.Message != c.want {
			t.Errorf("%v: %v, want %q", c.files, e, c.want)
		}
		// What was judged once is never run.
		if out, err := exec.Command(keeperExe, dir).CombinedOutput(); err == nil {
			t.Errorf("%v: a keeper that came late has run: %s", c.files, out)
		}
	}
	if _, err := m.Adopt(t.Context(), filepath.Join(m.dir, "none")); err == nil {
		t.Error("adopted a directory that is not there")
	}
}

func TestMany(t *testing.T) {
	t.Parallel()
	const tasks = 100
	m := newMachine(t)
	times, all := startMany(t, m, tasks)
	slices.Sort(times)
	t.Logf("%d starts at once: p50 %v, last %v", tasks, times[tasks/2], times[tasks-1])
	for _, p := range all {
		if err := p.Signal(true); err != nil {
			t.Error(err)
		}
	}
	for _, p := range all {
		if e := wait(t, p); e.Signal != "SIGKILL" {
			t.Errorf("exit %v, want SIGKILL", e)
		}
	}
}

// startMany starts count tasks at once, eight at a time as the loop does, and
// returns how long each start took.
func startMany(t testing.TB, m *machine, count int) ([]time.Duration, []*runtime.Process) {
	t.Helper()
	type outcome struct {
		took time.Duration
		p    *runtime.Process
		err  error
	}
	slots, outcomes := make(chan struct{}, 8), make(chan outcome, count)
	for i := range count {
		a := assignment(i, "sleep", "1000")
		dir := place(t, m.dir, a, 1)
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			begin := time.Now()
			p, err := m.Start(t.Context(), dir, a)
			outcomes <- outcome{time.Since(begin), p, err}
		}()
	}
	var times []time.Duration
	var all []*runtime.Process
	for range count {
		o := <-outcomes
		if o.err != nil {
			t.Error(o.err)
			continue
		}
		t.Cleanup(func() { end(t, o.p) })
		times, all = append(times, o.took), append(all, o.p)
	}
	return times, all
}
