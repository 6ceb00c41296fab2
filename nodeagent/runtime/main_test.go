package runtime_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/nodeagent/spread"
	"github.com/musterhq/muster/nodeagent/strike"
	"github.com/musterhq/muster/schema"
)

// agentEnv makes the test binary an agent on the state directory it names.
const agentEnv = "MUSTER_TEST_AGENT"

// parentEnv names the cgroup below which tests put tasks; with v2, an agent that
// is given none moves its process, which in tests is that of other agents too.
const parentEnv = "MUSTER_TEST_CGROUP_PARENT"

// keeperExe is the keeper that the tests use, and commonDir a directory that is removed after all of them.
var keeperExe, commonDir string

func TestMain(m *testing.M) {
	if strike.IsCall() {
		panic(strike.Exec())
	}
	if keeper.IsCall(os.Args[1:]) {
		os.Exit(keeper.Main(os.Args[1:]))
	}
	if len(os.Args) > 2 && os.Args[1] == attemptArg {
		os.Exit(attempt(os.Args[2:]))
	}
	if dir := os.Getenv(agentEnv); dir != "" {
		os.Exit(agent(dir))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("NOT ROOT: users, cgroups and what rests on them are not tested")
	}
	dir, err := os.MkdirTemp("", "keeper")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	commonDir = dir
	keeperExe = buildKeeper(dir)
	code := m.Run()
	if left := leaks(); len(left) > 0 {
		fmt.Printf("FAIL: left behind:\n\t%s\n", strings.Join(left, "\n\t"))
		code = 1
	}
	return code
}

// buildKeeper builds muster-keeper in dir. Where there is no go command, the
// test binary stands in for it, which is larger and slower.
func buildKeeper(dir string) string {
	exe := filepath.Join(dir, "muster-keeper")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", exe, "github.com/musterhq/muster/cmd/muster-keeper").CombinedOutput()
	if err == nil {
		return exe
	}
	if exe, err := exec.LookPath("muster-keeper"); err == nil { // .ci/vm has it built
		return exe
	}
	fmt.Printf("NOT TESTED: the real muster-keeper, which cannot be built: %v\n%s", err, out)
	if exe, err = os.Executable(); err != nil {
		panic(err)
	}
	return exe
}

// used are the state directories of this run.
var used struct {
	mu   sync.Mutex
	dirs []string
}

// leaks returns the processes and cgroups that this run's tests have left.
func leaks() []string {
	var left []string
	for _, dir := range used.dirs {
		for pid, what := range processesOf(dir) {
			left = append(left, fmt.Sprintf("process %d: %s", pid, what))
		}
		name := host.GroupsName(dir)
		_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), name) {
				left = append(left, path)
			}
			return nil
		})
	}
	return left
}

// processesOf returns the processes, by pid, of tasks and keepers in dir.
func processesOf(dir string) map[int]string {
	found := map[int]string{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		command, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if pid != os.Getpid() && (bytes.Contains(append(command, environ...), []byte(dir+"/")) || bytes.Contains(command, []byte("\x00"+dir+"\x00"))) {
			found[pid] = strings.ReplaceAll(string(command), "\x00", " ")
		}
	}
	return found
}

// machine is a state directory, and the Host and the Runtime on it.
type machine struct {
	*runtime.Runtime
	host *host.Host
	t    testing.TB
	dir  string
	// contained says that what it starts are containers, of what else would be processes.
	contained bool
	user      string                  // of these, "" for one that is not root
	by        schema.ContainerRuntime // that makes them, "" for any
}

// Start starts a as it shall be run.
func (m *machine) Start(ctx context.Context, dir string, a *schema.Assignment) (*runtime.Process, error) {
	if m.contained && a.Job.Kind != schema.Allocs && a.Job.Task.Container == nil {
		contained(a)
		a.Job.Task.Container.User, a.Job.Task.Container.Runtime = cmp.Or(m.user, a.Job.Task.Container.User), m.by
		if m.by == schema.Runsc {
			a.Job.Task.Resources.RAMBytes += kernelRAM
		}
	}
	return m.Runtime.Start(ctx, dir, a)
}

// kernelRAM is what a kernel in user space takes, with all that is beside it.
const kernelRAM = 64 << 20

// config is that of a machine.
type config struct {
	host host.Config
	runtime.Config
}

// openDir makes a Host and a Runtime on dir.
func openDir(dir string, change ...func(*config)) (*host.Host, *runtime.Runtime, error) {
	cfg := config{
		host.Config{Dir: dir, CgroupParent: os.Getenv(parentEnv)},
		runtime.Config{Keeper: keeperExe, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Runtimes: []schema.ContainerRuntime{schema.Crun, schema.Runc}},
	}
	for _, c := range change {
		c(&cfg)
	}
	h, err := host.New(cfg.host)
	if err != nil {
		return nil, nil, err
	}
	cfg.Host = h
	r, err := runtime.New(cfg.Config)
	if err != nil {
		return nil, nil, errors.Join(err, h.Close())
	}
	return h, r, nil
}

func newMachine(t testing.TB, change ...func(*config)) *machine {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // tasks pass through it
		t.Fatal(err)
	}
	used.mu.Lock()
	used.dirs = append(used.dirs, dir)
	used.mu.Unlock()
	m := &machine{t: t, dir: dir}
	m.open(change...)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m
}

// Close closes both.
func (m *machine) Close() error { return errors.Join(m.Runtime.Close(), m.host.Close()) }

// Notes says what the machine cannot do.
func (m *machine) Notes() []string { return append(m.host.Lacks().Notes(), m.Runtime.Notes()...) }

// open makes a new Runtime on m's directory, as the next agent does.
func (m *machine) open(change ...func(*config)) {
	m.t.Helper()
	var err error
	if m.host, m.Runtime, err = openDir(m.dir, change...); err != nil {
		m.t.Fatal(err)
	}
}

// tmp returns what the TMPDIR is of a task with that work directory.
func (m *machine) tmp(work string) string {
	if m.Attributes()["isolation.namespaces"] == "true" && !strings.HasPrefix(m.dir, "/tmp/") {
		return "/tmp"
	}
	return work + "/tmp"
}

// needNamespaces skips a test of what only namespaces do.
func (m *machine) needNamespaces(t *testing.T) {
	t.Helper()
	if m.Attributes()["isolation.namespaces"] != "true" {
		t.Skipf("NOT TESTED: needs namespaces: %v", m.Notes())
	}
}

// needRoot skips a test of what only root can do.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root")
	}
}

// needGroups skips a test of what only cgroups with the given controller do.
func (m *machine) needGroups(t *testing.T, controller string) {
	t.Helper()
	if m.Attributes()["isolation."+controller] != "true" {
		t.Skipf("NOT TESTED: needs the cgroup controller %s: %v", controller, m.Notes())
	}
}

func assignment(index int, command ...string) *schema.Assignment {
	j := &schema.Job{Name: "job", User: "ada", Cell: "local", Kind: schema.Service, Task: schema.TaskSpec{
		Process:   schema.Process{Command: command},
		Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 100, RAMBytes: 64 << 20}},
	}}
	return &schema.Assignment{Task: j.ID().Task(index), Generation: 7, Job: j}
}

// shell is an assignment that runs a script. $ is the shell's, not muster's.
func shell(index int, script string) *schema.Assignment {
	return assignment(index, "/bin/sh", "-c", strings.ReplaceAll(script, "$", "$$"))
}

// place makes the generation's directory of a, as the loop does, and returns
// that of its incarnation n.
func place(t testing.TB, root string, a *schema.Assignment, n int) string {
	t.Helper()
	gen := filepath.Join(root, "tasks", a.Task.Cell, a.Task.User, a.Task.Job, strconv.Itoa(a.Task.Index), strconv.FormatUint(a.Generation, 10))
	if err := os.MkdirAll(filepath.Dir(gen), 0o711); err != nil {
		t.Fatal(err)
	}
	spread.Apart(filepath.Dir(gen)) // as the loop does
	if err := os.MkdirAll(gen, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(gen, strconv.Itoa(n))
}

// start starts a as incarnation 1 and sees to its end when the test ends.
func (m *machine) start(a *schema.Assignment) (*runtime.Process, string) {
	m.t.Helper()
	dir := place(m.t, m.dir, a, 1)
	p, err := m.Start(m.t.Context(), dir, a)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { end(m.t, p) })
	return p, dir
}

// end kills p and waits for its end.
func end(t testing.TB, p *runtime.Process) *schema.Exit {
	t.Helper()
	if err := p.Signal(true); err != nil {
		t.Error(err)
	}
	return wait(t, p)
}

// wait returns the exit of p.
func wait(t testing.TB, p *runtime.Process) *schema.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		t.Fatalf("wait for the end of process %d: %v", p.State().PID, err)
	}
	return p.State().Exit
}

// slowEnv is set where each processor is emulated.
const slowEnv = "MUSTER_TEST_SLOW"

// patience is how long a test waits for what must come.
var patience = map[bool]time.Duration{true: time.Minute, false: 3 * time.Minute}[os.Getenv(slowEnv) == ""]

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}

// said returns what the task in dir has written to stdout.
func said(t testing.TB, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, keeper.StdoutFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// says waits until the task in dir has written text.
func says(t testing.TB, dir, text string) {
	t.Helper()
	eventually(t, "output "+text, func() bool { return strings.Contains(said(t, dir), text) })
}
