package linktest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agentlink "github.com/musterhq/muster/nodeagent/link"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/reconciler/sources"
	"github.com/musterhq/muster/schema"
)

const patience = time.Minute // far more than anything here takes

// TestMain fails when a test leaves a goroutine of ours or of gRPC behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leaked(patience); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

func leaked(patience time.Duration) string {
	buf := make([]byte, 1<<20)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			ours := strings.Contains(g, "musterhq/muster/") || strings.Contains(g, "google.golang.org/grpc")
			if ours && !strings.Contains(g, "linktest.TestMain") {
				left = append(left, g)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// master is a fake loop.
type master struct {
	mu      sync.Mutex
	epochs  map[string]uint64
	reports []schema.Report
	left    []departure
	refuse  error  // of Join
	from    string // of the last Join
	usage   []*schema.MachineUsage
	content []schema.Digest            // that was said last
	held    map[string][]schema.Digest // by machine
	desk    sources.Desk
	again   func() // pushes the view of m1 in its newest session
}

// departure is the end of a machine's session.
type departure struct {
	machine string
	epoch   uint64
}

func newMaster() *master { return &master{epochs: map[string]uint64{}} }

func (m *master) Join(_ context.Context, info schema.MachineInfo) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return 0, m.refuse
	}
	m.from = info.Link.From
	if info.Link.Answers {
		return 0, &schema.TakenError{Machine: info.Name, Holder: info.Name, Here: schema.PlaceOf(&info), Why: "the other one is connected", Hint: "forget it"}
	}
	m.epochs[info.Name]++
	if m.again != nil {
		m.again()
	}
	return m.epochs[info.Name], nil
}

// push makes a view that of m1, in its session and in those to come.
func (m *master) push(s *masterlink.Server, version uint64, view []schema.Assignment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.again = func() { s.Push("m1", schema.View{Epoch: m.epochs["m1"], Version: version, Assignments: view}) }
	m.again()
}

func (m *master) Report(_ context.Context, machine string, epoch uint64, r schema.Report) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.left, departure{machine, epoch}) {
		return fmt.Errorf("report of machine %s after it left epoch %d", machine, epoch)
	}
	m.reports = append(m.reports, r)
	return nil
}

func (m *master) Usage(_ context.Context, _ uint64, u *schema.MachineUsage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage = append(m.usage, u)
	return nil
}

func (m *master) Content(machine string, _ uint64, content []schema.Digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.content = content
	if m.held == nil {
		m.held = map[string][]schema.Digest{}
	}
	m.held[machine] = content
}

// Sources answers as a master does that leads.
func (m *master) Sources(_ context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.desk.Answer(&q, holdings{m}, time.Now()), nil
}

// holdings is what machines hold; the mutex is held.
type holdings struct{ *master }

func (m holdings) Holders(d schema.Digest) []string {
	var out []string
	for machine, content := range m.held {
		if slices.Contains(content, d) {
			out = append(out, machine)
		}
	}
	slices.Sort(out)
	return out
}

func (m holdings) Address(machine string) string {
	for i := len(m.reports) - 1; i >= 0; i-- {
		if r := &m.reports[i]; r.Machine.Name == machine {
			return r.Machine.Shares
		}
	}
	return ""
}

func (m *master) said() []schema.Digest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.content
}

func (m *master) samples() []*schema.MachineUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.usage)
}

func (m *master) Leave(machine string, epoch uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = append(m.left, departure{machine, epoch})
}

func (m *master) epoch(machine string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epochs[machine]
}

func (m *master) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.reports)
}

func (m *master) last() schema.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.reports) == 0 {
		return schema.Report{}
	}
	return m.reports[len(m.reports)-1]
}

// of returns the last report of a machine.
func (m *master) of(machine string) schema.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range slices.Backward(m.reports) {
		if r.Machine.Name == machine {
			return r
		}
	}
	return schema.Report{}
}

func (m *master) gone() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var epochs []uint64
	for _, d := range m.left {
		epochs = append(epochs, d.epoch)
	}
	return epochs
}

// agent is a fake node agent.
type agent struct {
	info schema.MachineInfo
	logs func(ctx context.Context, r schema.LogRequest, w io.Writer) error
	exec func(ctx context.Context, r schema.ExecRequest, conn io.ReadWriter)

	mu      sync.Mutex
	epoch   uint64
	view    schema.View
	tasks   []schema.TaskStatus
	fail    error // of Assign
	refused int
}

func (a *agent) Refused() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused++
	return nil
}

func newAgent(name string) *agent {
	return &agent{info: schema.MachineInfo{Name: name, Boot: "boot", Ports: schema.PortRange{First: 20000, Last: 20100}}}
}

func (a *agent) Info() schema.MachineInfo { return a.info }

func (a *agent) Welcome(epoch uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch < a.epoch {
		return fmt.Errorf("has seen epoch %d", a.epoch)
	}
	a.epoch = epoch
	return nil
}

func (a *agent) Assign(view schema.View) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fail != nil {
		return a.fail
	}
	a.view = view
	return nil
}

func (a *agent) Report() *schema.Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &schema.Report{Machine: a.info, View: a.view.Version, Tasks: a.tasks}
}

func (a *agent) Exec(ctx context.Context, r schema.ExecRequest, conn io.ReadWriter) {
	a.exec(ctx, r, conn)
}

func (a *agent) Logs(ctx context.Context, r schema.LogRequest, w io.Writer) error {
	return a.logs(ctx, r, w)
}

func (a *agent) has() (version uint64, view []schema.Assignment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.view.Version, a.view.Assignments
}

func (a *agent) seen() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.epoch
}

func (a *agent) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// journal collects what is logged.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.b.String(), text)
}

func (j *journal) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// socket returns a path for a socket: t.TempDir is too long for one.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "link")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve runs the master's side until the test or stop ends it.
func serve(t *testing.T, path string, cfg masterlink.Config) (s *masterlink.Server, stop func()) {
	t.Helper()
	cfg.Cell = "c"
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l, err := local.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s = masterlink.New(cfg)
	return s, background(t, func(ctx context.Context) error { return s.Serve(ctx, l) })
}

// run runs an agent's side until the test or stop ends it.
func run(t *testing.T, path string, cfg agentlink.Config) (c *agentlink.Client, stop func()) {
	t.Helper()
	cfg.Dial = path
	if cfg.Cell == "" {
		cfg.Cell = "c"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c = agentlink.New(cfg)
	return c, background(t, c.Run)
}

func background(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// task returns an assignment of a job of its own.
func task(job string, generation uint64) schema.Assignment {
	j := &schema.Job{Cell: "c", User: "u", Name: job, Kind: schema.Service, Tasks: 1}
	j.Task.Process.Command = []string{"/bin/true"}
	return schema.Assignment{
		Task: j.ID().Task(0), Generation: generation, Data: schema.DigestOf(j), Job: j,
		Ports: schema.PortsOf(map[string]int{"http": 20001}),
	}
}
