package loop_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// measured is an agent with real processes that measures often.
type measured struct {
	*loop.Loop
	tasks   processes
	metrics *prometheus.Registry
	dir     string
}

// startMeasured starts an agent on dir; parent is the cgroup of its tasks, "" that of
// all tests' tasks. Its tasks are stopped when the test ends.
func startMeasured(t *testing.T, dir, parent string, limits nodeagent.Limits) *measured {
	t.Helper()
	return startMeasuredWith(t, dir, parent, limits, 0)
}

// startMeasuredWith is startMeasured, with so much ballast.
func startMeasuredWith(t *testing.T, dir, parent string, limits nodeagent.Limits, ballast int64) *measured {
	t.Helper()
	openToAll(t, dir)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	tasks, err := openProcesses(host.Config{Dir: dir, CgroupParent: parent}, runtime.Config{Keeper: linkKeeper(t), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	m := &measured{tasks: tasks, metrics: prometheus.NewRegistry(), dir: dir}
	m.Loop, err = loop.New(t.Context(), loop.Config{
		Cell: "local", Machine: schema.MachineInfo{Name: "m1", Boot: tasks.Boot(), Ports: schema.PortRange{First: 1}},
		Dir: dir, Runtime: tasks, Log: log, Metrics: m.metrics, Meter: tasks,
		SampleEvery: 100 * time.Millisecond, DiskEvery: 100 * time.Millisecond, Limits: limits, BallastBytes: ballast,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop, end := context.WithTimeout(context.Background(), patience)
		defer end()
		if err := m.StopAll(stop); err != nil {
			t.Error(err)
		}
		cancel()
		if err := errors.Join(<-done, tasks.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// linkKeeper gives this test's binary the keeper's name. Nothing is written: a test
// beside this one may be forking, and its child would hold the file open.
func linkKeeper(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	openToAll(t, dir)
	keeper := filepath.Join(dir, "muster-keeper")
	if os.Link(exe, keeper) != nil { // another file system
		return filepath.Join(installBinaries(t), "muster-keeper")
	}
	return keeper
}

// script is a service of one task that runs a script; $ is the shell's.
func script(job string, generation uint64, priority schema.Priority, limit schema.Resources, text string) schema.Assignment {
	a := assignment(job, 0, generation, schema.Service)
	a.Job.Priority = priority
	a.Job.Task.Process.Command = []string{"/bin/sh", "-c", strings.ReplaceAll(text, "$", "$$")}
	a.Job.Task.Resources.Resources, a.Job.Task.GraceSeconds = limit, 1
	a.Data = schema.DigestOf(a.Job)
	return a
}

func (m *measured) assign(t *testing.T, view ...schema.Assignment) {
	t.Helper()
	if err := m.Assign(schema.View{Epoch: 1, Version: 1, Assignments: view}); err != nil {
		t.Fatal(err)
	}
}

// status returns what is reported of a generation.
func (m *measured) status(generation uint64) schema.TaskStatus {
	for _, s := range m.Report().Tasks {
		if s.Generation == generation {
			return s
		}
	}
	return schema.TaskStatus{}
}

// usage returns the newest sample of a generation.
func (m *measured) usage(generation uint64) schema.Usage {
	if u := m.Usage(); u != nil {
		for _, t := range u.Tasks {
			if t.Generation == generation {
				return t.Usage
			}
		}
	}
	return schema.Usage{}
}

// A task that fills its disk is stopped with the numbers and started again with
// an empty work directory; its neighbour and its logs stay.
func TestDiskFiller(t *testing.T) {
	t.Parallel()
	m := startMeasured(t, t.TempDir(), "", nodeagent.Limits{})
	limit := schema.Resources{CPUMilli: 100, RAMBytes: 64 * mib, DiskBytes: 4 * mib}
	m.assign(
		t,
		script("filler", 1, 200, limit, `echo $(ls); i=0; while :; do head -c 1048576 /dev/zero >f$i; sync f$i; i=$((i+1)); sleep 0.05; done`),
		script("good", 2, 0, limit, `head -c 1048576 /dev/zero >file; sync file; sleep 1000`),
	)
	eventually(t, "the filler restarted", func() bool { return m.status(1).Incarnation >= 2 })
	exit := m.status(1).Exits[0]
	if want := "stopped: out of resources: disk: "; !strings.HasPrefix(exit.Message, want) || !strings.Contains(exit.Message, "used, limit 4 MiB") {
		t.Errorf("message %q: want %q, and the limit", exit.Message, want)
	}
	out, err := os.ReadFile(filepath.Join(m.dir, "tasks/local/u/filler/0/1/2/stdout"))
	eventually(t, "the second incarnation's first word", func() bool {
		out, err = os.ReadFile(filepath.Join(m.dir, "tasks/local/u/filler/0/1/2/stdout"))
		return err == nil && len(out) > 0
	})
	if got := strings.TrimSpace(string(out)); got != "tmp" {
		t.Errorf("the next incarnation found %q in its directory, want only tmp", got)
	}
	eventually(t, "the neighbour is measured", func() bool { return m.usage(2).DiskBytes >= mib })
	if s := m.status(2); s.State != schema.Running || s.Incarnation != 1 {
		t.Errorf("the neighbour is %s, incarnation %d", s.State, s.Incarnation)
	}
	if n := m.counter(t, "muster_agent_evictions_total", "disk"); n < 1 {
		t.Errorf("%v evictions for disk were counted", n)
	}
}

// A process that the kernel kills for lack of memory, in a session of its own and
// with another parent than the task's, is counted for the task, which lives.
func TestOOMOfAChild(t *testing.T) {
	t.Parallel()
	m := startMeasured(t, t.TempDir(), "", nodeagent.Limits{})
	if m.tasks.Runtime.Attributes()[schema.HasMemory] != "true" {
		t.Skipf("NOT TESTED: needs the cgroup controller memory: %v", m.tasks.Lacks().Notes())
	}
	limit := schema.Resources{CPUMilli: 100, RAMBytes: 32 * mib, DiskBytes: mib}
	hog := `(setsid sh -c 'dd if=/dev/zero of=/dev/null bs=256M count=1' &);`
	m.assign(t, script("twice", 1, 200, limit, hog+`sleep 1;`+hog+`exec sleep 1000`), script("good", 2, 200, limit, `sleep 1000`))
	eventually(t, "both kills are reported", func() bool { return m.status(1).OOMKills == 2 })
	eventually(t, "and counted", func() bool { return m.counter(t, "muster_agent_oom_kills_total", "") == 2 })
	if s := m.status(1); s.State != schema.Running || s.Incarnation != 1 {
		t.Errorf("the task is %s, incarnation %d", s.State, s.Incarnation)
	}
	if n := m.status(2).OOMKills; n != 0 {
		t.Errorf("its neighbour has %d", n)
	}
}

// counter returns the value of the counter whose first label, if any, has the given
// value.
func (m *measured) counter(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := m.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if f.GetName() == name && (label == "" || metric.GetLabel()[0].GetValue() == label) {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// When the machine has no memory left, the task of the lowest priority goes, not
// the one that takes more; its end is reported.
func TestMemoryHog(t *testing.T) {
	t.Parallel()
	parent := limitedCgroup(t, 400*mib)
	m := startMeasured(t, t.TempDir(), parent, nodeagent.Limits{RAMBytes: 120 * mib})
	limit := schema.Resources{CPUMilli: 100, RAMBytes: 400 * mib, DiskBytes: 64 * mib}
	// dd has the block in memory, and nobody reads what it writes.
	held := func(n int) string {
		return fmt.Sprintf(`dd if=/dev/zero bs=%dM count=1 | sleep 1000`, n)
	}
	m.assign(
		t,
		script("prod", 1, 200, limit, held(150)),
		script("low", 2, 50, limit, held(150)),
		script("least", 3, 10, limit, `sleep 1000`),
	)
	eventually(t, "the hog is dead", func() bool { return m.status(2).State == schema.Dead })
	end := m.status(2).End
	if end.Kind != schema.CauseOutOfResources || end.Resource != schema.MachineRAM ||
		!strings.Contains(end.Message, "of 400 MiB left, want 120 MiB; the task used 1") {
		t.Errorf("it ended with %+v", end)
	}
	eventually(t, "memory is back", func() bool { return m.Usage().RAMAvailable >= 120*mib })
	for _, g := range []uint64{1, 3} {
		if s := m.status(g); s.State != schema.Running || s.Incarnation != 1 || s.Note == "" && s.End != nil {
			t.Errorf("generation %d is %s, incarnation %d", g, s.State, s.Incarnation)
		}
	}
	eventually(t, "the prod task has what it wants", func() bool { return m.usage(1).RAMBytes >= 150*mib })
	if u := m.usage(1); u.RAMBytes > 200*mib || u.Processes < 2 {
		t.Errorf("the prod task uses %+v, want 150 MiB and some processes", u)
	}
}

// limitedCgroup makes a cgroup with a memory limit and returns its path.
func limitedCgroup(t *testing.T, limit int64) string {
	t.Helper()
	name := "muster-test-" + strconv.Itoa(os.Getpid())
	made := false
	for _, f := range []string{"/sys/fs/cgroup/memory/" + name + "/memory.limit_in_bytes", "/sys/fs/cgroup/" + name + "/memory.max"} {
		if _, err := os.Stat(filepath.Dir(filepath.Dir(f))); err != nil || os.Mkdir(filepath.Dir(f), 0o755) != nil {
			continue
		}
		if os.WriteFile(f, []byte(strconv.FormatInt(limit, 10)), 0) == nil {
			made = true
			break
		}
		_ = os.Remove(filepath.Dir(f)) // no cgroup, or not of memory
	}
	t.Cleanup(func() {
		dirs, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
		if err != nil {
			t.Error(err)
		}
		for _, d := range append(dirs, "/sys/fs/cgroup/"+name) {
			if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
	if !made {
		t.Skip("NOT TESTED: needs root and the cgroup controller memory")
	}
	return "/" + name
}

// When the machine has no disk left, remains go first; then the task of the
// lowest priority, and with it what it has written.
func TestMachineDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("muster-test", dir, "tmpfs", 0, "size=64m,mode=0711"); err != nil {
		t.Skipf("NOT TESTED: needs to mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m := startMeasured(t, dir, "", nodeagent.Limits{DiskBytes: 24 * mib})
	limit := schema.Resources{CPUMilli: 100, RAMBytes: 256 * mib}
	m.assign(t, script("old", 1, 300, limit, `head -c 12582912 /dev/zero >file; sleep 1000`))
	eventually(t, "the first runs", func() bool { return m.usage(1).DiskBytes >= 12*mib })
	hog := script("hog", 2, 10, limit, `i=0; while :; do head -c 1048576 /dev/zero >f$i; i=$((i+1)); sleep 0.05; done`)
	good := script("good", 3, 100, limit, `head -c 2097152 /dev/zero >file; sleep 1000`)
	if err := m.Assign(schema.View{Epoch: 1, Version: 2, Assignments: []schema.Assignment{hog, good}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hog is dead", func() bool { return m.status(2).State == schema.Dead })
	if end := m.status(2).End; end.Kind != schema.CauseOutOfResources || end.Resource != schema.MachineDisk || !strings.Contains(end.Message, "of 64 MiB left, want 24 MiB; the task used") {
		t.Errorf("it ended with %v", end)
	}
	if _, err := os.Stat(filepath.Join(dir, "tasks/local/u/old/0/1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the first has left is still there: %v", err)
	}
	if n := m.counter(t, "muster_agent_removed_total", "pressure"); n != 1 {
		t.Errorf("%v removals for pressure were counted, want 1", n)
	}
	eventually(t, "the disk is free again", func() bool { return m.Usage().DiskFree >= 24*mib })
	if s := m.status(3); s.State != schema.Running || s.Incarnation != 1 {
		t.Errorf("the neighbour is %s, incarnation %d: %v", s.State, s.Incarnation, s.End)
	}
}
