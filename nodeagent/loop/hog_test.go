package loop_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/strike"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

var hogRounds = flag.Int("hogs.rounds", 0, "pairs of TestHogs, each with and without hogs; 0: only that hogs are held")

// phase is how long requests are measured at a time.
const phase = 3 * time.Second

// hogMain is a task of TestHogs.
func hogMain(what string) int {
	switch what {
	case "requests":
		return requests()
	case "cpu":
		var turns [4]int
		for i := range turns {
			go func() {
				for {
					turns[i]++
				}
			}()
		}
		select {}
	case "memory":
		b := []byte{1}
		for {
			b = append(b, b...)
		}
	case "forks":
		for {
			_ = exec.Command("/proc/self/exe", "forks").Start()
		}
	case "disk":
		return fill()
	case "syncs":
		return syncs()
	case "flush":
		return flush()
	case "logs":
		line := bytes.Repeat([]byte("x"), 1023)
		line = append(line, '\n')
		for {
			if _, err := os.Stdout.Write(line); err != nil {
				return 1
			}
		}
	}
	return 2
}

// fill writes its work directory full and has the disk write all of it, until it
// is stopped for that.
func fill() int {
	block := make([]byte, 1<<20)
	for i := 0; ; i++ {
		f, err := os.Create(fmt.Sprintf("fill%d", i))
		if err != nil {
			return 1
		}
		_, err = f.Write(block)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return 1
		}
	}
}

// requests serves itself: a request every two milliseconds, each a fifth of a
// millisecond of work. It prints when each began and how long it took.
func requests() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	serve := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sum := 0
		for i := range 200_000 {
			sum += i
		}
		_, _ = fmt.Fprintln(w, sum)
	})
	go func() { _ = http.Serve(l, serve) }()
	out := bufio.NewWriter(os.Stdout)
	for n := 0; ; n++ {
		began := time.Now()
		r, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			return 1
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		fmt.Fprintf(out, "%d %d\n", began.UnixNano(), time.Since(began))
		if n%50 == 0 {
			_ = out.Flush()
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// hogs is a real agent with real tasks.
type hogs struct {
	t    *testing.T
	loop *loop.Loop
	dir  string
	exe  string

	version    uint64
	generation uint64
}

func newHogs(t *testing.T) *hogs {
	t.Helper()
	bin, dir := installBinaries(t), t.TempDir()
	openToAll(t, dir)
	log := slog.New(slog.DiscardHandler)
	tasks, err := openProcesses(host.Config{Dir: dir}, runtime.Config{Keeper: filepath.Join(bin, "muster-keeper"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range []string{"cpu", "memory", "pids", "cpuset"} {
		if tasks.Runtime.Attributes()["isolation."+controller] != "true" {
			t.Skipf("NOT TESTED: needs the cgroup controller %s: %v", controller, tasks.Lacks().Notes())
		}
	}
	if tasks.Capacity().CPUMilli < 2000 {
		t.Skip("NOT TESTED: needs two cores")
	}
	l, err := loop.New(t.Context(), loop.Config{
		Cell: "local", Dir: dir, Runtime: tasks, Log: log, Metrics: prometheus.NewRegistry(),
		Machine: schema.MachineInfo{Name: "m1", Boot: tasks.Boot(), Ports: schema.PortRange{First: 1}, Capacity: tasks.Capacity()},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		stop, halt := context.WithTimeout(context.Background(), time.Minute)
		defer halt()
		if err := l.StopAll(stop); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
		if err := tasks.Close(); err != nil {
			t.Error(err)
		}
	})
	exe := filepath.Join(shared(t), "hog")
	b, err := os.ReadFile(filepath.Join(bin, "agent"))
	if err != nil {
		t.Fatal(err)
	}
	if err := strike.Program(t.Context(), exe, b); err != nil {
		t.Fatal(err)
	}
	return &hogs{t: t, loop: l, dir: dir, exe: exe}
}

// task is an assignment that runs hogMain.
func (h *hogs) task(what string, kind schema.JobKind, milli int64) schema.Assignment {
	h.generation++
	a := assignment(what, 0, h.generation, kind)
	a.Job.Task.Process.Command = []string{h.exe, what}
	a.Job.Task.Resources.Resources = schema.Resources{CPUMilli: milli, RAMBytes: 128 << 20}
	a.Job.Task.GraceSeconds = 0
	a.Data = schema.DigestOf(a.Job)
	return a
}

func (h *hogs) assign(view ...schema.Assignment) {
	h.t.Helper()
	h.version++
	view = slices.SortedFunc(slices.Values(view), func(a, b schema.Assignment) int { return a.Task.Compare(b.Task) })
	if err := h.loop.Assign(schema.View{Epoch: 1, Version: h.version, Assignments: view}); err != nil {
		h.t.Fatal(err)
	}
}

// until waits for what the report says of a generation.
func (h *hogs) until(what string, generation uint64, ok func(schema.TaskStatus) bool) {
	h.t.Helper()
	// Hogs are slow when there are other hogs.
	for end := time.Now().Add(6 * patience); !slices.ContainsFunc(h.loop.Report().Tasks, func(s schema.TaskStatus) bool { return s.Generation == generation && ok(s) }); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("never came: %s: %+v", what, h.loop.Report().Tasks)
		}
	}
}

func isRunning(s schema.TaskStatus) bool { return s.State == schema.Running }

func isDead(s schema.TaskStatus) bool { return s.State == schema.Dead }

// beside returns the hogs of a name in hogKinds.
func (h *hogs) beside(name string) []schema.Assignment {
	var hogs []schema.Assignment
	for _, what := range hogKinds[name] {
		a := h.task(what, schema.Batch, 300)
		switch r := &a.Job.Task.Resources; what {
		case "memory":
			r.RAMBytes = 48 << 20
		case "disk":
			r.DiskBytes = 2 << 30 // some seconds' worth
		}
		a.Data = schema.DigestOf(a.Job)
		hogs = append(hogs, a)
	}
	return hogs
}

// hogKinds are the hogs that requests are measured beside, each by what hogMain
// does.
var hogKinds = map[string][]string{
	"hogs": {"cpu", "memory", "forks"}, "a disk filler": {"disk"}, "a log flood": {"logs"},
}

// p99 measures the requests of the task for a phase.
func (h *hogs) p99(web schema.Assignment) time.Duration {
	h.t.Helper()
	took := h.took(web, phase)
	if len(took) < 100 {
		h.t.Fatalf("only %d requests in %v", len(took), phase)
	}
	return took[len(took)*99/100]
}

// took returns how long all took that the task began within a phase from now, the
// shortest first.
func (h *hogs) took(web schema.Assignment, phase time.Duration) []time.Duration {
	h.t.Helper()
	from := time.Now()
	to := from.Add(phase)
	time.Sleep(phase + 300*time.Millisecond) // what is printed lags
	b, err := os.ReadFile(filepath.Join(h.dir, "tasks", "local", "u", web.Task.Job, "0", strconv.FormatUint(web.Generation, 10), "1", "stdout"))
	if err != nil {
		h.t.Fatal(err)
	}
	var took []time.Duration
	for line := range strings.Lines(string(b)) {
		var began, ns int64
		if n, _ := fmt.Sscan(line, &began, &ns); n == 2 && began >= from.UnixNano() && began < to.UnixNano() {
			took = append(took, time.Duration(ns))
		}
	}
	slices.Sort(took)
	return took
}

// quiet is how many cores are idle, at least, while the task is alone, for a
// round to count: the machine's other programs are not in the hogs' cgroups.
const quiet = 1.2

// idleTime returns for how long the machine's cores have been idle, all together.
func idleTime(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	var up, idle float64
	if _, err := fmt.Sscan(string(b), &up, &idle); err != nil {
		t.Fatal(err)
	}
	return time.Duration(idle * float64(time.Second))
}

// TestHogs: beside hogs of processors, memory and processes, a task that fills
// its disk, and one that floods its log, a latency-sensitive task answers nearly
// as fast as alone; and one that syncs has its writes on disk nearly as fast. The pairs alternate, since other programs run on the machine
// too.
func TestHogs(t *testing.T) {
	if *hogRounds == 0 {
		t.Parallel()
	}
	for _, c := range []struct {
		name  string
		whole bool
		goal  float64
	}{{"shared", false, 3}, {"own core", true, 1.5}} {
		t.Run(c.name, func(t *testing.T) {
			h := newHogs(t)
			web := h.task("requests", schema.Service, 1000)
			web.Job.Task.Resources.WholeCores = c.whole
			web.Data = schema.DigestOf(web.Job)
			h.assign(web)
			h.until("requests are served", web.Generation, isRunning)
			if *hogRounds == 0 {
				h.held(web)
				return
			}
			for _, name := range slices.Sorted(maps.Keys(hogKinds)) {
				h.pairs(web, name, c.goal)
			}
		})
	}
	if *hogRounds > 0 {
		t.Run("syncs", syncsBeside)
	}
}

// pairs measures the requests alone and beside hogs, round by round.
func (h *hogs) pairs(web schema.Assignment, name string, goal float64) {
	t := h.t
	t.Helper()
	var ratios []float64
	for range *hogRounds {
		before := idleTime(t)
		alone := h.p99(web)
		idle := float64(idleTime(t)-before) / float64(phase)
		hogs := h.beside(name)
		h.assign(append(hogs, web)...)
		h.until("the hogs run", hogs[0].Generation, isRunning)
		beside := h.p99(web)
		h.assign(web)
		for _, hog := range hogs {
			h.until("the hogs are gone", hog.Generation, isDead)
		}
		ratio := float64(beside) / float64(alone)
		t.Logf("p99 alone %v, beside %s %v: %.2f; %.1f idle cores while alone", alone, name, beside, ratio, idle)
		if idle > quiet {
			ratios = append(ratios, ratio)
		}
	}
	slices.Sort(ratios)
	if 2*len(ratios) <= *hogRounds {
		t.Logf("%s: not judged: other programs used the machine in %d of %d rounds", name, *hogRounds-len(ratios), *hogRounds)
	} else if median := ratios[len(ratios)/2]; median > goal {
		t.Errorf("%s: median of %d ratios %.2f, want at most %.2f", name, len(ratios), median, goal)
	} else {
		t.Logf("%s: median of %d ratios %.2f, goal %.2f", name, len(ratios), median, goal)
	}
}

// held sees that hogs get what they may and no more, and are gone when they are stopped.
func (h *hogs) held(web schema.Assignment) {
	h.t.Helper()
	hogs := h.beside("hogs")
	h.assign(append(hogs, web)...)
	h.until("the memory hog is killed for lack of memory", hogs[1].Generation, func(s schema.TaskStatus) bool {
		return len(s.Exits) > 0 && s.Exits[0].OOM
	})
	h.until("the fork bomb runs", hogs[2].Generation, func(s schema.TaskStatus) bool { return isRunning(s) || len(s.Exits) > 0 })
	h.until("requests are served", web.Generation, isRunning)
	h.assign(web)
	for _, hog := range hogs {
		h.until("the hogs are gone", hog.Generation, isDead)
	}
}
