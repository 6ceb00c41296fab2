package runtime_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

func TestMain(m *testing.M) {
	if keeper.IsCall(os.Args[1:]) {
		os.Exit(keeper.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// machine is a state directory and the Runtime on it.
type machine struct {
	*runtime.Runtime
	dir string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{dir: dir, Runtime: open(t, dir)}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m
}

func open(t *testing.T, dir string) *runtime.Runtime {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := runtime.New(runtime.Config{Dir: dir, Keeper: exe, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func assignment(index int, command ...string) *schema.Assignment {
	j := &schema.Job{Name: "job", User: "ada", Cell: "local", Kind: schema.Service, Task: schema.TaskSpec{
		Process:   schema.Process{Command: command},
		Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 100, RAMBytes: 32 << 20}},
	}}
	return &schema.Assignment{Task: j.ID().Task(index), Generation: 7, Job: j}
}

func (m *machine) place(t *testing.T, a *schema.Assignment, n int) string {
	t.Helper()
	gen := filepath.Join(m.dir, "tasks", a.Task.Cell, a.Task.User, a.Task.Job, strconv.Itoa(a.Task.Index), strconv.FormatUint(a.Generation, 10))
	if err := os.MkdirAll(gen, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(gen, strconv.Itoa(n))
}

func TestExit(t *testing.T) {
	m := newMachine(t)
	t.Log(m.Notes(), m.Attributes(), m.Capacity())
	a := assignment(0, "sh", "-c", "id; env; pwd; cat /proc/self/cgroup; exit 3")
	dir := m.place(t, a, 1)
	begin := time.Now()
	p, err := m.Start(t.Context(), dir, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(begin))
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(begin))
	b, _ := os.ReadFile(filepath.Join(dir, "stdout"))
	t.Logf("%+v %s\n%s", p.Incarnation(), p.Incarnation().Exit, b)
}
