package loop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/nodeagent/strike"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/turns"
)

// The test binary is also the agent and the keeper, under those names.
func TestMain(m *testing.M) {
	switch {
	case strike.IsCall():
		panic(strike.Exec())
	case filepath.Base(os.Args[0]) == "hog", filepath.Base(os.Args[0]) == "exe":
		os.Exit(hogMain(os.Args[1]))
	case keeper.IsCall(os.Args[1:]): // by name or, in a sandbox, by /proc/self/exe
		os.Exit(keeper.Main(os.Args[1:]))
	case filepath.Base(os.Args[0]) == "agent":
		os.Exit(agentMain(os.Args[1], os.Args[2]))
	}
	os.Exit(m.Run())
}

// ask is one line to an agent process: a view to take, or nothing but the wish
// for a report.
type ask struct {
	Version uint64
	View    []schema.Assignment
}

// agentMain is an agent process on dir that gets its requests on stdin and
// prints its reports on stdout. It kills itself at its step at.
func agentMain(dir, at string) int {
	n, err := strconv.Atoi(at)
	if err != nil {
		return 2
	}
	steps := make(chan int, 1)
	steps <- 0
	step := func(what string) {
		seen := <-steps + 1
		if seen == n {
			fmt.Fprintln(os.Stderr, "killed at", what)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		steps <- seen
	}
	err = agentProcess(dir, step, func() int { return <-steps })
	fmt.Fprintln(os.Stderr, "agent:", err)
	return 1
}

// processes is a machine whose tasks are processes, in the loop's words.
type processes struct {
	*host.Host
	*runtime.Runtime
}

// openProcesses makes one whose cgroups are beside those of all tests' tasks, unless
// of says otherwise.
func openProcesses(of host.Config, how runtime.Config) (p processes, err error) {
	if of.CgroupParent == "" {
		of.CgroupParent = os.Getenv("MUSTER_TEST_CGROUP_PARENT")
	}
	if p.Host, err = host.New(of); err != nil {
		return p, err
	}
	how.Host = p.Host
	if p.Runtime, err = runtime.New(how); err != nil {
		err = errors.Join(err, p.Host.Close())
	}
	return p, err
}

func (p processes) Start(ctx context.Context, dir string, a *schema.Assignment) (loop.Process, error) {
	process, err := p.Runtime.Start(ctx, dir, a)
	if err != nil {
		return nil, err
	}
	return process, nil
}

func (p processes) Adopt(ctx context.Context, dir string) (loop.Process, error) {
	process, err := p.Runtime.Adopt(ctx, dir)
	if err != nil {
		return nil, err
	}
	return process, nil
}

func (p processes) Close() error { return errors.Join(p.Runtime.Close(), p.Host.Close()) }

// writableEnv names the directory in which tasks write down that they run.
const writableEnv = "MUSTER_TEST_WRITABLE"

func agentProcess(dir string, step func(string), steps func() int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	tasks, err := openProcesses(host.Config{Dir: dir}, runtime.Config{Keeper: filepath.Join(filepath.Dir(exe), "muster-keeper"), Writable: filepath.SplitList(os.Getenv(writableEnv)), Log: log})
	if err != nil {
		return err
	}
	l, err := loop.New(context.Background(), loop.Config{
		Cell: "local", Machine: schema.MachineInfo{Name: "m1", Boot: tasks.Boot(), Ports: schema.PortRange{First: 1}},
		Dir: dir, Runtime: tasks, Log: log, Metrics: prometheus.NewRegistry(), Step: step,
	})
	if err != nil {
		return err
	}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			var a ask
			if err := json.Unmarshal(in.Bytes(), &a); err != nil {
				panic(err)
			}
			if a.Version != 0 {
				for try := 1; ; try++ { // as the link does: the disk may refuse it
					err := l.Assign(schema.View{Epoch: 1, Version: a.Version, Assignments: a.View})
					if err == nil {
						break
					}
					if log.Error("assign", "err", err); try == 100 {
						panic(err)
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			b, _ := json.Marshal(l.Report())
			fmt.Printf("%s\n", b)
		}
		fmt.Println(steps())
		if err := tasks.Close(); err != nil { // no cgroup is left behind
			panic(err)
		}
		os.Exit(0) // as good as any other way to die
	}()
	return l.Run(context.Background())
}

// realStory is a short day of one machine with real processes, real files and
// agents that are really killed.
type realStory struct {
	t       *testing.T
	bin     string
	dir     string
	log     string // what the tasks write
	agent   *exec.Cmd
	stdin   io.WriteCloser
	in      *json.Encoder
	out     *bufio.Scanner
	at      int // kill the next agent at this step of it
	version uint64
	view    []schema.Assignment
	dead    map[uint64]bool
	stderr  strings.Builder
	notes   []string // of tasks, as it was reported
	struck  bool     // the agents are traced
	steps   int      // of the agent that lived to the end
}

// installBinaries puts this test's binary under the names of agent and keeper.
func installBinaries(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"agent", "muster-keeper"} {
		if err := strike.Program(t.Context(), filepath.Join(dir, name), b); err != nil {
			t.Fatal(err)
		}
	}
	openToAll(t, dir)
	return dir
}

// openToAll lets tasks, which may have another user, reach dir.
func openToAll(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// shared makes a directory that tasks see too: each has a /tmp of its own.
func shared(t *testing.T) string {
	t.Helper()
	top := "/var/lib"
	if os.Geteuid() != 0 {
		var err error
		if top, err = os.UserHomeDir(); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp(top, "muster-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newRealStory(t *testing.T, bin string, at int) *realStory {
	t.Helper()
	s := &realStory{t: t, bin: bin, dir: t.TempDir(), log: filepath.Join(shared(t), "log"), at: at, dead: map[uint64]bool{}}
	openToAll(t, s.dir)
	if err := os.WriteFile(s.log, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.log, 0o666); err != nil {
		t.Fatal(err)
	}
	return s
}

// task is an assignment whose process writes that it runs, and holds a lock
// that shows if another one of the same task does.
func (s *realStory) task(job string, generation uint64, kind schema.JobKind, rest string) schema.Assignment {
	a := assignment(job, 0, generation, kind)
	lock := s.log + "." + job
	a.Job.Task.Process.Command = []string{"/bin/sh", "-c", fmt.Sprintf(
		`umask 0; exec 9>>%s; flock -n 9 || echo double %s >>%s; echo start %s >>%s; %s`, lock, job, s.log, job, s.log, rest)}
	a.Job.Task.Resources.Resources = schema.Resources{CPUMilli: 100, RAMBytes: 64 << 20, DiskBytes: 1 << 20}
	a.Job.Task.GraceSeconds = 2
	a.Data = schema.DigestOf(a.Job)
	return a
}

func (s *realStory) start() {
	s.agent = exec.Command(filepath.Join(s.bin, "agent"), s.dir, strconv.Itoa(s.at))
	if s.struck { // see package strike
		s.agent = exec.Command("/bin/sh", "-c", `"$0" "$@"; exit $?`, s.agent.Path, s.dir, strconv.Itoa(s.at))
	}
	s.agent.Env = append(os.Environ(), writableEnv+"="+filepath.Dir(s.log))
	s.at = 0
	stdin, err := s.agent.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stdout, err := s.agent.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.agent.Stderr = &s.stderr
	if err := s.agent.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.stdin = stdin
	s.in, s.out = json.NewEncoder(stdin), bufio.NewScanner(stdout)
	s.out.Buffer(nil, 1<<20)
}

// say sends the agent a and returns its report; false if it died instead.
func (s *realStory) say(a ask) (r schema.Report, ok bool) {
	if s.in.Encode(a) != nil || !s.out.Scan() {
		_ = s.agent.Wait()
		s.agent = nil
		return r, false
	}
	if err := json.Unmarshal(s.out.Bytes(), &r); err != nil {
		s.t.Fatalf("agent said %q: %v", s.out.Text(), err)
	}
	return r, true
}

// listen keeps an agent alive until ok is true of its report, or patience ends.
func (s *realStory) listen(ok func(schema.Report) bool) bool {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
		if s.agent == nil {
			s.start()
			if _, ok := s.say(ask{s.version, s.view}); !ok {
				continue
			}
		}
		if r, alive := s.say(ask{}); alive && ok(r) {
			return true
		}
	}
	return false
}

// until keeps an agent alive until its report, in short, is want.
func (s *realStory) until(want ...string) {
	s.t.Helper()
	var got []string
	if s.listen(func(r schema.Report) bool {
		for _, e := range r.Tasks {
			if s.dead[e.Generation] && e.State != schema.Dead {
				s.t.Errorf("%s after it was reported dead", line(e))
			}
			s.dead[e.Generation] = s.dead[e.Generation] || e.State == schema.Dead
		}
		got = lines(r)
		return slices.Equal(got, want)
	}) {
		return
	}
	s.t.Fatalf("report (-want +got):\n%s\n%s", cmp.Diff(want, got), s.stderr.String())
}

func (s *realStory) assign(view ...schema.Assignment) {
	s.version++
	s.view = view
	if s.agent != nil {
		_, _ = s.say(ask{s.version, s.view})
	}
}

func (s *realStory) play() {
	s.t.Helper()
	defer s.end()
	web, batch := s.task("web", 1, schema.Service, "exec sleep 1000"), s.task("batch", 2, schema.Batch, "exit 0")
	s.assign(web, batch)
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 running")
	s.said("start web", 1)
	s.assign(stopped(web, schema.CauseUpdate))
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 dead update")
	s.assign(s.task("web", 3, schema.Service, "exec sleep 1000"))
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 dead update", "u/web/0 g3 running")
	s.said("start web", 2)
	s.assign()
	s.until("u/batch/0 g2 dead finished", "u/web/0 g1 dead update", "u/web/0 g3 dead superseded")
	s.said("start batch", 1)
	if text := s.words(); strings.Contains(text, "double") {
		s.t.Errorf("the tasks say:\n%s", text)
	}
}

func (s *realStory) words() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// said waits until the tasks have said so n times at least.
func (s *realStory) said(what string, n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d × %q", n, what), func() bool { return strings.Count(s.words(), what) >= n })
}

// end ends the agent, and whatever task a failed test has left.
func (s *realStory) end() {
	if s.agent == nil {
		return
	}
	if s.t.Failed() {
		s.assign()
		for r, ok := s.say(ask{}); ok && slices.ContainsFunc(r.Tasks, func(e schema.TaskStatus) bool { return e.State != schema.Dead }); r, ok = s.say(ask{}) {
			time.Sleep(10 * time.Millisecond)
		}
		return
	}
	_ = s.stdin.Close()
	if s.out.Scan() {
		s.steps, _ = strconv.Atoi(s.out.Text())
	}
	_ = s.agent.Wait()
}

// playAlloc runs the story of an alloc and of what runs inside: that is stopped
// first, and nothing of either is left.
func (s *realStory) playAlloc() {
	s.t.Helper()
	defer s.end()
	set := schema.AllocSet{Name: "pair", User: "u", Cell: "local", Allocs: 1, Resources: schema.Resources{CPUMilli: 200, RAMBytes: 128 << 20}}
	pair := schema.Assignment{Task: set.ID().Task(0), Generation: 1, Data: schema.DigestOf(set.Job()), Job: set.Job()}
	web := s.task("web", 2, schema.Service, `touch "$$MUSTER_ALLOC_DIR/seen"; exec sleep 1000`)
	web.Alloc = &schema.AllocUse{Set: "pair", Generation: 1}
	s.assign(pair, web)
	s.until("u/pair/0 g1 running", "u/web/0 g2 running")
	s.said("start web", 1)
	shared := filepath.Join(s.dir, "tasks", "local", "u", "pair", "0", "1")
	eventually(s.t, "the task has written to the shared directory", func() bool {
		_, err := os.Stat(filepath.Join(shared, "shared", "seen"))
		return err == nil
	})
	s.assign(pair, stopped(web, schema.CauseUpdate))
	s.until("u/pair/0 g1 running", "u/web/0 g2 dead update")
	web = s.task("web", 3, schema.Service, "exec sleep 1000")
	web.Alloc = &schema.AllocUse{Set: "pair", Generation: 1}
	s.assign(pair, web)
	s.until("u/pair/0 g1 running", "u/web/0 g2 dead update", "u/web/0 g3 running")
	s.assign(stopped(pair, schema.CauseUpdate), web) // the task is stopped by its agent
	s.until("u/pair/0 g1 dead update", "u/web/0 g2 dead update", "u/web/0 g3 dead alloc-gone")
	if text := s.words(); strings.Contains(text, "double") {
		s.t.Errorf("the tasks say:\n%s", text)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), s.dir) {
		s.t.Errorf("mounts are left in %s, or none can be seen: %v", s.dir, err)
	}
}

// Agents are really killed, at each step, with real keepers and tasks under
// them: no task ever runs twice.
func TestKillRealAgentAtEveryStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("half a minute of real processes")
	}
	bin := installBinaries(t)
	killAtEveryStep(t, bin, 30, (*realStory).play)
	t.Run("alloc", func(t *testing.T) {
		t.Parallel()
		killAtEveryStep(t, bin, 20, (*realStory).playAlloc)
	})
}

// killAtEveryStep runs a story of at least so many steps again and again.
func killAtEveryStep(t *testing.T, bin string, least int, play func(*realStory)) {
	t.Helper()
	whole := newRealStory(t, bin, 0)
	play(whole)
	if whole.steps < least {
		t.Fatalf("only %d steps\n%s", whole.steps, whole.stderr.String())
	}
	t.Logf("%d steps", whole.steps)
	for at := 1; at <= whole.steps; at++ {
		if !turns.Takes(at) {
			continue
		}
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			t.Parallel()
			s := newRealStory(t, bin, at)
			play(s)
			if t.Failed() {
				t.Log(s.stderr.String())
			}
		})
	}
}
