package loop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
	"github.com/prometheus/client_golang/prometheus"
)

// kernel is a machine's process table: it outlives agents. It fails the test
// when a task has two processes at once, or an incarnation is started twice.
type kernel struct {
	t    *testing.T
	boot string

	mu     sync.Mutex // guards what follows
	pids   int
	procs  map[string]*process // by directory
	starts map[string]int      // by task directory
	// stubborn tasks ignore SIGTERM; broken ones cannot be started.
	stubborn, broken bool
	// limited tasks can be given limits; stiff ones keep what they have.
	limited, stiff bool
	// wait is how much of the time, in thousandths, a task waits for a
	// processor, by job; all tasks use one core.
	wait     map[string]int64
	diskWait map[string]int64 // likewise, for the disk
	// fault is why no task at all can be started; look is how often agents
	// look at the machine.
	fault error
	look  time.Duration
	// hardware is what agents take the machine for.
	hardware string
	answer   func() (output string, err error) // of a command beside a task
	networks loop.Networks
}

// set changes what the kernel does while an agent uses it.
func (k *kernel) set(change func(*kernel)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

func (k *kernel) run() (output string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answer == nil {
		return "", nil
	}
	return k.answer()
}

func newKernel(t *testing.T) *kernel {
	return &kernel{t: t, boot: "boot-1", procs: map[string]*process{}, starts: map[string]int{}}
}

// process is one incarnation in the table.
type process struct {
	kernel *kernel
	dir    string
	is     nodeagent.Process
	ended  chan struct{}
	terms  int
	cpu    nodeagent.CPUTime
	cpuAt  time.Time
	usage  schema.Usage
	line   string // what the task says of itself
	// signals are those of renewals, and files what those have put in place.
	signals  []string
	renewals int // calls of Renew that did so
	files    map[string]string
}

func taskDir(dir string) string { return filepath.Dir(filepath.Dir(dir)) }

func (k *kernel) start(dir string, a *schema.Assignment) *process {
	k.mu.Lock()
	defer k.mu.Unlock()
	for d, p := range k.procs {
		if taskDir(d) == taskDir(dir) && p.is.Exit == nil {
			k.t.Errorf("start in %s while %s is alive", dir, d)
		}
	}
	if k.procs[dir] != nil {
		k.t.Errorf("second start in %s", dir)
	}
	k.pids++
	k.starts[taskDir(dir)]++
	p := &process{kernel: k, dir: dir, ended: make(chan struct{}), is: nodeagent.Process{Boot: k.boot, PID: 100 + k.pids, StartedAt: time.Now(), Note: "fake", Given: nodeagent.GivenOf(&a.Job.Task), Step: a.Step, Attempt: a.Attempt}}
	p.is.Limited, p.cpuAt = k.limited, time.Now()
	k.procs[dir] = p
	return p
}

// exit ends the live process of a task, if there is one.
func (k *kernel) exit(task string, e schema.Exit) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.procs {
		if filepath.Join(filepath.Base(filepath.Dir(taskDir(p.dir))), filepath.Base(taskDir(p.dir))) == task && p.is.Exit == nil {
			p.exit(e)
			return true
		}
	}
	return false
}

func (p *process) exit(e schema.Exit) {
	e.At = time.Now()
	p.is.Exit = &e
	close(p.ended)
}

func (k *kernel) alive() (dirs []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for d, p := range k.procs {
		if p.is.Exit == nil {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// hand is a Runtime: what one agent can do to the kernel. step is called before
// and after each effect.
type hand struct {
	kernel *kernel
	step   func(string)
}

func (h hand) Start(_ context.Context, dir string, a *schema.Assignment) (loop.Process, error) {
	h.step("make incarnation")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "stdout"), []byte("out of "+filepath.Base(dir)+"\n"), 0o600); err != nil {
		return nil, err
	}
	h.step("start process")
	if h.kernel.broken {
		return nil, nodeagent.TaskError(errors.New("exec /bin/x: no such file or directory"))
	}
	if h.kernel.fault != nil {
		return nil, h.kernel.fault
	}
	p := h.kernel.start(dir, a)
	h.step("after start process")
	return grip{p, h.step}, nil
}

func (h hand) Adopt(_ context.Context, dir string) (loop.Process, error) {
	h.kernel.mu.Lock()
	defer h.kernel.mu.Unlock()
	p := h.kernel.procs[dir]
	if p == nil { // its agent died before the keeper was started
		p = &process{kernel: h.kernel, dir: dir, ended: make(chan struct{}), is: nodeagent.Process{Boot: h.kernel.boot}}
		p.exit(schema.Exit{Code: -1, Message: "it was never started"})
		h.kernel.procs[dir] = p
	}
	return grip{p, h.step}, nil
}

func (hand) Remains(dir string) []string { return []string{filepath.Join(dir, "work")} }

// grip is a Process: what one agent can do to a process.
type grip struct {
	p    *process
	step func(string)
}

func (g grip) State() nodeagent.Process {
	g.p.kernel.mu.Lock()
	defer g.p.kernel.mu.Unlock()
	return g.p.is
}

func (g grip) Exec(_ context.Context, r schema.ExecRequest, conn io.ReadWriter) error {
	if r.Command[0] == "refused" {
		return errors.New("no such command")
	}
	kind, data, err := schema.NewExecFrames(conn).Next()
	if err != nil || kind != schema.ExecInput {
		return fmt.Errorf("frame %q: %w", kind, err)
	}
	_, err = conn.Write(schema.AppendExecFrame(nil, schema.ExecStdout, data))
	return err
}

func (g grip) Signal(kill bool) error {
	g.step("signal")
	k := g.p.kernel
	k.mu.Lock()
	if g.p.is.Exit == nil {
		switch {
		case kill:
			g.p.exit(schema.Exit{Code: -1, Signal: "SIGKILL"})
		default:
			g.p.terms++
			if !k.stubborn {
				g.p.exit(schema.Exit{Code: 0})
			}
		}
	}
	k.mu.Unlock()
	g.step("after signal")
	return nil
}

func (grip) Processes() nodeagent.Processes { return nodeagent.Processes{} }

func (g grip) Run(context.Context, []string, time.Duration) (string, error) { return g.p.kernel.run() }

func (g grip) Line() string {
	g.p.kernel.mu.Lock()
	defer g.p.kernel.mu.Unlock()
	return g.p.line
}

// CPU lets the process have run since the last call.
func (g grip) CPU() nodeagent.CPUTime {
	g.p.kernel.mu.Lock()
	defer g.p.kernel.mu.Unlock()
	d := time.Since(g.p.cpuAt)
	g.p.cpuAt = time.Now()
	g.p.cpu.Used += d
	g.p.cpu.Waited += d * time.Duration(g.p.kernel.wait[filepath.Base(filepath.Dir(taskDir(g.p.dir)))]) / 1000
	g.p.cpu.IOWaited += d * time.Duration(g.p.kernel.diskWait[filepath.Base(filepath.Dir(taskDir(g.p.dir)))]) / 1000
	return g.p.cpu
}

func (g grip) Limit(l nodeagent.TaskLimits) error {
	g.p.kernel.mu.Lock()
	defer g.p.kernel.mu.Unlock()
	if g.p.kernel.stiff {
		return errors.New("it keeps what it has")
	}
	g.p.is.Limits = l
	return nil
}

func (g grip) Renew(a *schema.Assignment, r nodeagent.Renewal) error {
	g.step("renew")
	g.p.kernel.mu.Lock()
	if g.p.kernel.stiff {
		g.p.kernel.mu.Unlock()
		return errors.New("no room for the file")
	}
	if g.p.files == nil {
		g.p.files = map[string]string{}
	}
	for _, name := range r.Changed {
		delete(g.p.files, name)
		if f, ok := a.Job.Task.Files[strings.TrimPrefix(name, "files/")]; ok {
			g.p.files[name] = f.Content
		}
	}
	g.p.signals = append(g.p.signals, r.Signals...)
	g.p.renewals++
	g.p.kernel.mu.Unlock()
	g.step("after renew")
	return nil
}

func (g grip) Wait(ctx context.Context) error {
	select {
	case <-g.p.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// agent is one life of an agent.
type agent struct {
	*loop.Loop
	kill  context.CancelFunc
	done  chan struct{}
	hints *atomic.Int64
}

// crash kills an agent at its n-th step: whoever comes by there or later ends.
type crash struct {
	mu    sync.Mutex // guards what follows
	at    int        // 0: never
	seen  int
	names []string
	kill  func()
}

func (c *crash) step(what string) {
	c.mu.Lock()
	c.seen++
	c.names = append(c.names, what)
	now := c.at != 0 && c.seen >= c.at
	kill := c.kill
	c.mu.Unlock()
	if now {
		if kill != nil {
			kill()
		}
		runtime.Goexit()
	}
}

func (c *crash) crashed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at != 0 && c.seen >= c.at
}

// startAgent starts an agent in a synctest bubble or outside. It returns nil
// when the agent was killed while it began.
func startAgent(t *testing.T, k *kernel, dir string, c *crash) *agent {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a := &agent{kill: cancel, done: make(chan struct{}), hints: new(atomic.Int64)}
	c.mu.Lock()
	c.kill = cancel
	c.mu.Unlock()
	made := make(chan error, 1)
	go func() {
		defer close(made)
		defer close(a.done)
		l, err := loop.New(ctx, config(k, dir, c, func() { a.hints.Add(1) }))
		if err != nil {
			made <- err
			return
		}
		a.Loop = l
		made <- nil
		if err := l.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	err, ok := <-made
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	if !ok {
		cancel()
		return nil
	}
	return a
}

func config(k *kernel, dir string, c *crash, hint func()) loop.Config {
	return loop.Config{
		Cell: "local", Dir: dir, Runtime: hand{k, c.step}, Step: c.step, Hint: hint, LookEvery: k.look, Hardware: k.hardware, Networks: k.networks,
		Machine: schema.MachineInfo{Name: "m1", Boot: k.boot, Ports: schema.PortRange{First: 1, Last: 0}},
		Log:     slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	}
}

// stop kills the agent and waits until nothing of it runs.
func (a *agent) stop() {
	a.kill()
	<-a.done
}

// rest waits until the agent has nothing to do at this time.
func rest() { synctest.Wait() }

func name(job string, index int) schema.TaskName {
	return schema.JobName{Cell: "local", User: "u", Job: job}.Task(index)
}

func assignment(job string, index int, generation uint64, kind schema.JobKind) schema.Assignment {
	j := &schema.Job{Name: job, User: "u", Cell: "local", Kind: kind, Task: schema.TaskSpec{
		Process: schema.Process{Command: []string{"/bin/x"}}, GraceSeconds: 5,
	}}
	return schema.Assignment{Task: name(job, index), Generation: generation, Data: schema.DigestOf(j), Job: j}
}

func stopped(a schema.Assignment, kind schema.CauseKind) schema.Assignment {
	a.Stop = &schema.Cause{Kind: kind, At: time.Now()}
	return a
}

// line is a task's entry in short: "u/web/0 g7 dead finished".
func line(s schema.TaskStatus) string {
	text := s.Task.Short() + " g" + strconv.FormatUint(s.Generation, 10) + " " + string(s.State)
	if s.End != nil {
		text += " " + string(s.End.Kind)
	}
	return text
}

func lines(r schema.Report) (list []string) {
	for _, s := range r.Tasks {
		list = append(list, line(s))
	}
	return list
}

func (g grip) Usage() (schema.Usage, bool) {
	g.p.kernel.mu.Lock()
	defer g.p.kernel.mu.Unlock()
	u := g.p.usage
	u.At = time.Now()
	return u, g.p.is.Exit == nil
}
