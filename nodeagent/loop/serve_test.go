package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
)

// live is an agent in real time.
type live struct {
	*loop.Loop
	kernel  *kernel
	dir     string
	metrics *prometheus.Registry
	version uint64
}

func startLive(t *testing.T) *live {
	t.Helper()
	k := newKernel(t)
	cfg := config(k, t.TempDir(), &crash{}, nil)
	l, err := loop.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return &live{Loop: l, kernel: k, dir: cfg.Dir, metrics: cfg.Metrics.(*prometheus.Registry)}
}

func (l *live) assign(t *testing.T, view ...schema.Assignment) {
	t.Helper()
	l.version++
	if err := l.Assign(schema.View{Epoch: 1, Version: l.version, Assignments: view}); err != nil {
		t.Fatal(err)
	}
}

func (l *live) until(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprint(want), func() bool { return cmp.Equal(want, lines(*l.Report())) })
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusFound) // a redirect is an answer
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Location", "/nowhere")
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	server.Listener.Close()
	port, listen := bound(t)
	l := startLive(t)
	web := assignment("web", 0, 1, schema.Service)
	web.Job.Task.Health = &schema.Health{HTTP: &schema.HTTPCheck{Port: "http", Path: "/healthz"}}
	web.Job.Task.Restart = &schema.Restart{WindowSeconds: 60} // the stand-in has its port
	web.Ports = schema.PortsOf(map[string]int{"http": port})
	l.assign(t, web)
	l.until(t, "u/web/0 g1 running")
	if got := l.Report().Tasks[0].Health; got != schema.HealthUnknown {
		t.Errorf("health %q before it listens, want unknown", got)
	}
	server.Listener = listen()
	server.Start()
	eventually(t, "healthy", func() bool { return l.Report().Tasks[0].Health == schema.Healthy })
	status.Store(http.StatusInternalServerError)
	l.until(t, "u/web/0 g1 dead failed")
	want := fmt.Sprintf("exited with status 0: stopped: unhealthy: GET http://127.0.0.1:%d/healthz: status 500 Internal Server Error, 3 times; its policy allows no restart", port)
	if end := l.Report().Tasks[0].End; end.Message != want {
		t.Errorf("end %q, want %q", end.Message, want)
	}
}

// bound takes a port for a server that stands in for a task, which listens later: an agent
// that starts the task has to find the port free.
func bound(t *testing.T) (port int, listen func() net.Listener) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(err)
	f := os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { f.Close() })
	must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)) // as the agent does
	must(unix.Bind(fd, &unix.SockaddrInet4{}))
	name, err := unix.Getsockname(fd)
	must(err)
	port = name.(*unix.SockaddrInet4).Port
	if loop.CheckPort(port) != nil {
		return bound(t) // somebody has the number for UDP or IPv6
	}
	return port, func() net.Listener {
		t.Helper()
		must(unix.Listen(fd, 16))
		l, err := net.FileListener(f)
		must(err)
		return l
	}
}

// A command that could not be run says nothing of its task.
func TestCheckNotRun(t *testing.T) {
	t.Parallel()
	check := &nodeagent.Check{Assignment: assignment("web", 0, 1, schema.Service), Health: (&schema.Health{Exec: &schema.ExecCheck{Command: []string{"probe"}}}).Timed()}
	for name, tt := range map[string]struct {
		err  error
		want nodeagent.Result
	}{
		"passes":           {want: nodeagent.Result{OK: true}},
		"fails":            {err: errors.New("exited with status 1"), want: nodeagent.Result{Message: "run probe: exited with status 1: said"}},
		"takes too long":   {err: context.DeadlineExceeded, want: nodeagent.Result{Message: "run probe: context deadline exceeded: said"}},
		"could not be run": {err: fmt.Errorf("%w: no keeper", nodeagent.ErrNotRun), want: nodeagent.Result{Void: true, Message: "not counted: run probe: could not be run: no keeper: said"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKernel(t)
			k.answer = func() (string, error) { return "said", tt.err }
			got := loop.Ask(t.Context(), check, grip{p: &process{kernel: k}})
			got.At = time.Time{}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A task whose network is its own is not asked at the addresses of the machine, where others answer
// or nobody.
func TestCheckNotElsewhere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := assignment("web", 0, 1, schema.Service)
	a.Ports = schema.Ports{{Name: "http", Port: l.Addr().(*net.TCPAddr).Port}}
	for name, h := range map[string]schema.Health{"tcp": {TCP: &schema.TCPCheck{Port: "http"}}, "http": {HTTP: &schema.HTTPCheck{Port: "http", Path: "/"}}} {
		of, want := a, nodeagent.Result{Void: true, Message: "not counted: health check: could not be run: the addresses of the task's network are not known here"}
		of.OwnNetwork = true
		for _, n := range []*schema.TaskNetwork{nil, {}} {
			of.Network = n
			got := loop.Ask(t.Context(), &nodeagent.Check{Assignment: of, Health: h.Timed()}, nil)
			got.At = time.Time{}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	if r := loop.Ask(t.Context(), &nodeagent.Check{Assignment: a, Health: (&schema.Health{TCP: &schema.TCPCheck{Port: "http"}}).Timed()}, nil); !r.OK {
		t.Errorf("a task with the machine's network: %+v", r)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	l := startLive(t)
	l.assign(t, assignment("web", 0, 7, schema.Service))
	l.until(t, "u/web/0 g7 running")
	file := filepath.Join(l.dir, "tasks/local/u/web/0/7/1/stdout")
	text := "one\ntwo\nthree\nunfinished"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tail int
		want string
	}{{-1, text}, {0, ""}, {1, "unfinished"}, {2, "three\nunfinished"}, {4, text}, {9, text}} {
		var b bytes.Buffer
		err := l.Logs(t.Context(), schema.LogRequest{Task: name("web", 0), Tail: tt.tail}, &b)
		if err != nil || b.String() != tt.want {
			t.Errorf("tail %d: %q, %v, want %q", tt.tail, b.String(), err, tt.want)
		}
	}
	for _, tt := range []struct {
		req  schema.LogRequest
		want string
	}{
		{schema.LogRequest{Task: name("web", 1)}, "log of task u/web/1: not on this machine"},
		{schema.LogRequest{Task: name("web", 0), Generation: 6}, "log of task u/web/0 generation 6: not on this machine"},
		{schema.LogRequest{Task: name("web", 0), Generation: 7, Incarnation: 2}, "log of task u/web/0 generation 7 incarnation 2: not on this machine"},
		{schema.LogRequest{Task: name("web", 0), Stream: schema.Stderr}, "log of u/web/0 generation 7 incarnation 1: not on this machine: it did not start"},
	} {
		err := l.Logs(t.Context(), tt.req, &bytes.Buffer{})
		if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, loop.ErrNoLog) || err.Error() != tt.want {
			t.Errorf("%+v: %v, want %q", tt.req, err, tt.want)
		}
	}
}

// A long log's tail is found across blocks.
func TestLogTailOfLongLog(t *testing.T) {
	t.Parallel()
	l := startLive(t)
	l.assign(t, assignment("web", 0, 7, schema.Service))
	l.until(t, "u/web/0 g7 running")
	var all []string
	for i := range 20_000 {
		all = append(all, fmt.Sprintf("line %d\n", i))
	}
	if err := os.WriteFile(filepath.Join(l.dir, "tasks/local/u/web/0/7/1/stdout"), []byte(strings.Join(all, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 100, 5000, 19_999, 20_000} {
		var b bytes.Buffer
		if err := l.Logs(t.Context(), schema.LogRequest{Task: name("web", 0), Tail: n}, &b); err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(all[len(all)-n:], ""); b.String() != want {
			t.Errorf("tail %d: %d bytes, want %d", n, b.Len(), len(want))
		}
	}
}

// locked is a writer that can be read while it is written to.
type locked struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (w *locked) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *locked) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// Following goes on through restarts and new generations, to the task's end.
func TestLogFollow(t *testing.T) {
	t.Parallel()
	l := startLive(t)
	l.assign(t, assignment("batch", 0, 7, schema.Batch))
	var w locked
	done := make(chan error, 1)
	go func() {
		done <- l.Logs(context.Background(), schema.LogRequest{Task: name("batch", 0), Follow: true, Tail: 10}, &w)
	}()
	sees := func(want string) {
		t.Helper()
		eventually(t, fmt.Sprintf("log %q", want), func() bool { return w.String() == want })
	}
	sees("out of 1\n")
	f, err := os.OpenFile(filepath.Join(l.dir, "tasks/local/u/batch/0/7/1/stdout"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("more\n"); err != nil {
		t.Fatal(err)
	}
	sees("out of 1\nmore\n")
	if _, err := f.WriteString("last words\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	l.kernel.exit("batch/0", schema.Exit{Code: 1})
	sees("out of 1\nmore\nlast words\nout of 2\n")
	l.assign(t, assignment("batch", 0, 8, schema.Batch))
	sees("out of 1\nmore\nlast words\nout of 2\nout of 1\n")
	l.kernel.exit("batch/0", schema.Exit{Code: 0})
	if err := <-done; err != nil {
		t.Errorf("Logs: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Logs(ctx, schema.LogRequest{Task: name("batch", 0), Follow: true}, &w); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestLogFollowFromNext: a reader that has read a generation to its end asks for the
// first run of the next, which may not have started yet.
func TestLogFollowFromNext(t *testing.T) {
	t.Parallel()
	l := startLive(t)
	l.assign(t, assignment("batch", 0, 7, schema.Batch))
	l.until(t, "u/batch/0 g7 running")
	var w locked
	done := make(chan error, 1)
	go func() {
		done <- l.Logs(context.Background(), schema.LogRequest{
			Task: name("batch", 0), Follow: true, Framed: true, Tail: -1, From: &schema.LogPosition{Generation: 8, Incarnation: 1},
		}, &w)
	}()
	eventually(t, "it waits", func() bool { return w.String() == schema.LogMagic })
	l.assign(t, assignment("batch", 0, 8, schema.Batch))
	eventually(t, "the log of generation 8", func() bool { return strings.HasSuffix(w.String(), "out of 1\n") })
	l.kernel.exit("batch/0", schema.Exit{Code: 0})
	if err := <-done; err != nil {
		t.Errorf("Logs: %v", err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	l := startLive(t)
	l.version = 41
	l.assign(t, assignment("batch", 0, 1, schema.Batch), assignment("web", 0, 2, schema.Service))
	l.until(t, "u/batch/0 g1 running", "u/web/0 g2 running")
	l.kernel.exit("batch/0", schema.Exit{Code: 0})
	l.until(t, "u/batch/0 g1 dead finished", "u/web/0 g2 running")
	l.kernel.exit("web/0", schema.Exit{Code: -1, Signal: "SIGSEGV"})
	eventually(t, "restarted", func() bool {
		return l.Report().Tasks[1].Incarnation == 2 && l.Report().Tasks[1].State == schema.Running
	})
	want := `
# HELP muster_agent_batch_cpu_milli CPU limit of all batch tasks together while latency-sensitive tasks wait for CPU, in thousandths of a core; 0: none.
# TYPE muster_agent_batch_cpu_milli gauge
muster_agent_batch_cpu_milli 0
# HELP muster_agent_bounded_disk_bytes Limit in bytes per second of what throttled tasks may read, and of what they may write, together on the state directory's disk; 0: none.
# TYPE muster_agent_bounded_disk_bytes gauge
muster_agent_bounded_disk_bytes 0
# HELP muster_agent_busy_ports Ports of the machine's range that are in use by processes other than tasks.
# TYPE muster_agent_busy_ports gauge
muster_agent_busy_ports 0
# HELP muster_agent_clock_offset_seconds By how much the master's clock is ahead of this machine's, at the last report.
# TYPE muster_agent_clock_offset_seconds gauge
muster_agent_clock_offset_seconds 0
# HELP muster_agent_condition 1 while the machine is in this condition.
# TYPE muster_agent_condition gauge
muster_agent_condition{condition="broken-runtime"} 0
muster_agent_condition{condition="clock-skew"} 0
muster_agent_condition{condition="damaged-state"} 0
muster_agent_condition{condition="disk-pressure"} 0
muster_agent_condition{condition="memory-pressure"} 0
muster_agent_condition{condition="read-only-fs"} 0
# HELP muster_agent_damaged_files_total Files of the state directory that were found damaged or lost.
# TYPE muster_agent_damaged_files_total counter
muster_agent_damaged_files_total 0
# HELP muster_agent_errors_total Actions that the disk or the kernel refused; they are retried.
# TYPE muster_agent_errors_total counter
muster_agent_errors_total 0
# HELP muster_agent_evictions_total Incarnations that were evicted for lack of a resource, by resource: disk is the task's own limit.
# TYPE muster_agent_evictions_total counter
muster_agent_evictions_total{resource="disk"} 0
muster_agent_evictions_total{resource="machine disk"} 0
muster_agent_evictions_total{resource="machine memory"} 0
# HELP muster_agent_exits_total Incarnations that ended, by how they ended.
# TYPE muster_agent_exits_total counter
muster_agent_exits_total{how="ok"} 1
muster_agent_exits_total{how="signal"} 1
# HELP muster_agent_link_epoch Highest link epoch that the agent got from a master.
# TYPE muster_agent_link_epoch gauge
muster_agent_link_epoch 1
# HELP muster_agent_machine_left_inodes Free inodes of the state directory's file system.
# TYPE muster_agent_machine_left_inodes gauge
muster_agent_machine_left_inodes 0
# HELP muster_agent_oom_kills_total Processes of tasks that the kernel killed for lack of memory.
# TYPE muster_agent_oom_kills_total counter
muster_agent_oom_kills_total 0
# HELP muster_agent_removals_stuck Directory trees of ended tasks that could not be removed; the removal is retried.
# TYPE muster_agent_removals_stuck gauge
muster_agent_removals_stuck 0
# HELP muster_agent_restarts_total Incarnations after the first of their generation, started or refused.
# TYPE muster_agent_restarts_total counter
muster_agent_restarts_total 1
# HELP muster_agent_starts_total Incarnations that were started.
# TYPE muster_agent_starts_total counter
muster_agent_starts_total 3
# HELP muster_agent_tasks Task generations in the agent's report, by state.
# TYPE muster_agent_tasks gauge
muster_agent_tasks{state="dead"} 1
muster_agent_tasks{state="running"} 1
muster_agent_tasks{state="starting"} 0
muster_agent_tasks{state="stopping"} 0
muster_agent_tasks{state="waiting"} 0
# HELP muster_agent_unhealthy_total Incarnations whose health check found them unhealthy.
# TYPE muster_agent_unhealthy_total counter
muster_agent_unhealthy_total 0
# HELP muster_agent_view_version Version of the assignments that the agent acts on.
# TYPE muster_agent_view_version gauge
muster_agent_view_version 42
`
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(l.metrics, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	page, latency, _ := strings.Cut(rec.Body.String(), "# HELP muster_agent_start_seconds ")
	latency, rest, _ := strings.Cut(latency, "# HELP muster_agent_starts_total ")
	page = "\n" + page + "# HELP muster_agent_starts_total " + rest
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if !strings.Contains(latency, "muster_agent_start_seconds_count 3\n") {
		t.Errorf("start_seconds: want 3 in\n%s", latency)
	}
}
