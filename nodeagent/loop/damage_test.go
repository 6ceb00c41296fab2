package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// damages are ways to spoil a file; other is one of the same kind of another task.
var damages = map[string]func(path, other string) error{
	"empty":      func(path, _ string) error { return os.Truncate(path, 0) },
	"cut short":  func(path, _ string) error { return os.Truncate(path, 20) },
	"one byte":   func(path, _ string) error { return flip(path) },
	"random":     func(path, _ string) error { return os.WriteFile(path, []byte("\x7fELF\x00\xff{{{\""), 0o600) },
	"no content": func(path, _ string) error { return os.WriteFile(path, []byte("{}"), 0o600) },
	"a list":     func(path, _ string) error { return os.WriteFile(path, []byte("[1,2]"), 0o600) },
	"deleted":    func(path, _ string) error { return os.Remove(path) },
	"directory": func(path, _ string) error {
		return instead(path, func(at string) error { return os.MkdirAll(at+"/sub", 0o755) })
	},
	"link": func(path, other string) error {
		return instead(path, func(at string) error { return os.Symlink(other, at) })
	},
	"pipe": func(path, _ string) error {
		return instead(path, func(at string) error { return syscall.Mkfifo(at, 0o600) })
	},
	"swapped": func(path, other string) error {
		return instead(path, func(at string) error { return copyFile(other, at) })
	},
	"mode 0": func(path, _ string) error { return os.Chmod(path, 0) },
}

// instead has at path, at once, what put makes: an agent that runs puts back what is not
// there.
func instead(path string, put func(at string) error) error {
	dir, err := os.MkdirTemp("", "damage-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "new")
	if err := put(at); err != nil {
		return err
	}
	return unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
}

func flip(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(b) > 0 { // a lock is empty
		b[len(b)/3] ^= 1
	}
	return os.WriteFile(path, b, 0o600)
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// bench is a machine whose agent, in this process, is stopped and started.
type bench struct {
	*realStory
	processes processes
	loop      *loop.Loop
	stop      func()
	with      func(*loop.Config) // nil: as begin has it
}

func newBench(t *testing.T) *bench {
	b := &bench{realStory: newRealStory(t, installBinaries(t), 0)}
	t.Cleanup(b.end)
	return b
}

// end stops all that runs.
func (b *bench) end() {
	if b.stop == nil {
		b.begin()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.loop.StopAll(ctx); err != nil {
		b.t.Error(err)
	}
	b.halt()
}

func (b *bench) halt() {
	b.stop()
	b.stop = nil
	if err := b.processes.Close(); err != nil {
		b.t.Error(err)
	}
}

// begin starts the agent, which must not take long, whatever it finds.
func (b *bench) begin() {
	b.t.Helper()
	log := slog.New(slog.NewTextHandler(&b.stderr, nil))
	found := loop.NewDamages(b.dir, log)
	began := time.Now()
	var err error
	b.processes, err = openProcesses(host.Config{Dir: b.dir, Damaged: found.Report}, runtime.Config{
		Keeper: filepath.Join(b.bin, "muster-keeper"), Log: log, Writable: []string{filepath.Dir(b.log)},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	cfg := loop.Config{
		Cell: "local", Machine: schema.MachineInfo{Name: "m1", Boot: b.processes.Boot(), Ports: schema.PortRange{First: 1}},
		Dir: b.dir, Runtime: b.processes, Log: log, Metrics: prometheus.NewRegistry(), Damages: found, LookEvery: 50 * time.Millisecond,
	}
	if b.with != nil {
		b.with(&cfg)
	}
	if b.loop, err = loop.New(b.t.Context(), cfg); err != nil {
		b.t.Fatal(err)
	}
	if took := time.Since(began); took > patience {
		b.t.Errorf("the agent has taken %v to start", took)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.loop.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
}

func (b *bench) assign() {
	b.t.Helper()
	b.version++
	if err := b.loop.Assign(schema.View{Epoch: 1, Version: b.version, Assignments: b.view}); err != nil {
		b.t.Fatal(err)
	}
}

// until waits until ok is true of each task.
func (b *bench) until(what string, ok func(schema.TaskStatus) bool) map[string]schema.TaskStatus {
	b.t.Helper()
	var waits []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		waits = nil
		all := map[string]schema.TaskStatus{}
		for _, s := range b.loop.Report().Tasks {
			all[s.Task.Job] = s
			if !ok(s) {
				waits = append(waits, fmt.Sprintf("%s: %s %v", line(s), s.Note, s.Exits))
			}
		}
		if len(waits) == 0 && len(all) == len(b.view) {
			return all
		}
	}
	b.t.Fatalf("want all to be %s, and wait for %q", what, waits)
	return nil
}

func runs(s schema.TaskStatus) bool { return s.State == schema.Running }

// file returns the path of a file of a job's only task.
func (b *bench) file(job string, generation uint64, name string) string {
	dir := filepath.Join(b.dir, "tasks/local/u", job, "0", fmt.Sprint(generation))
	if name == "assignment.json" || name == "end.json" || name == "." {
		return filepath.Join(dir, name)
	}
	return filepath.Join(dir, "1", name)
}

// spoiled is a task of which one file is damaged.
type spoiled struct {
	job, name, how string
	generation     uint64
}

// spoil lists a task for each file and damage.
func spoil(names ...string) (list []spoiled) {
	for _, name := range names {
		for how := range damages {
			job := strings.NewReplacer(" ", "-", ".", "-").Replace(name + "-" + how)
			list = append(list, spoiled{job, name, how, uint64(len(list) + 1)})
		}
	}
	return list
}

// do damages all of them.
func (b *bench) do(list []spoiled) {
	b.t.Helper()
	for i, x := range list {
		other := list[(i+len(damages))%len(list)] // of another file, if there is one
		path, otherPath := b.file(x.job, x.generation, x.name), b.file(other.job, other.generation, x.name)
		if err := damages[x.how](path, otherPath); err != nil {
			b.t.Fatalf("%s: %v", x.job, err)
		}
	}
}

// begins counts how often a task has begun, and fails if it did twice at a time.
func (b *bench) begins(job string) int {
	b.t.Helper()
	text, err := os.ReadFile(b.log)
	if err != nil {
		b.t.Fatal(err)
	}
	if strings.Contains(string(text), "double "+job+"\n") {
		b.t.Errorf("%s ran twice at a time", job)
	}
	return strings.Count(string(text), "start "+job+"\n")
}

// begunOnce wants that no task of list has begun again; all is what is reported of them.
func (b *bench) begunOnce(list []spoiled, all map[string]schema.TaskStatus) {
	b.t.Helper()
	for _, x := range list {
		if n := b.begins(x.job); n != 1 {
			b.t.Errorf("%s (%s: %s) has begun %d times, want 1: %+v", x.job, x.name, x.how, n, all[x.job].Exits)
		}
	}
}

// each starts a task for each of list and waits until all are in a state.
func (b *bench) each(list []spoiled, kind schema.JobKind, rest string, ok func(schema.TaskStatus) bool) {
	b.t.Helper()
	b.begin()
	for _, x := range list {
		b.view = append(b.view, b.task(x.job, x.generation, kind, rest))
	}
	b.assign()
	b.until("begun", ok)
	for _, x := range list { // what runs may not have said so yet
		eventually(b.t, x.job+" has begun", func() bool { return b.begins(x.job) > 0 })
	}
}

// hasDamage reports whether the machine has the condition.
func hasDamage(r *schema.Report) bool {
	for _, c := range r.Conditions {
		if c.Kind == schema.DamagedState {
			return true
		}
	}
	return false
}

// TestDamagedWhileStopped: while no agent runs, each file of a running task is
// damaged in each way, and its directories are lost. All are adopted as they run, for
// their keepers know what they hold.
func TestDamagedWhileStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	list := spoil("assignment.json", keeper.SpecFile, keeper.StateFile, keeper.LockFile)
	for _, name := range []string{"", "."} { // of the incarnation, and of the generation
		list = append(list, spoiled{"lost" + name + "x", name, "lost", uint64(len(list) + 1)})
	}
	list[len(list)-1].job = "lost-all"
	b.each(list, schema.Service, "exec sleep 1000", runs)
	b.halt()
	b.do(list[:len(list)-2])
	for _, x := range list[len(list)-2:] {
		if err := os.RemoveAll(b.file(x.job, x.generation, x.name)); err != nil {
			t.Fatal(err)
		}
	}
	b.begin()
	eventually(t, "the machine has the condition", func() bool { return hasDamage(b.loop.Report()) })
	b.assign()
	b.begunOnce(list, b.until("running", runs))
	b.whole(list[:len(list)-2])
}

// whole waits until all files are as they were written.
func (b *bench) whole(list []spoiled) {
	b.t.Helper()
	for _, x := range list {
		path := b.file(x.job, x.generation, x.name)
		ok := func() bool {
			if x.name == keeper.LockFile {
				info, err := os.Lstat(path)
				return err == nil && info.Mode().IsRegular()
			}
			return durable.Sealed(path)
		}
		eventually(b.t, fmt.Sprintf("%s of %s (%s) is written anew", x.name, x.job, x.how), ok)
	}
}

// TestDamagedWhileRunning: an agent that runs writes again what is damaged of the
// tasks that it holds. Nothing is started again, then or after the next start.
func TestDamagedWhileRunning(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	list := spoil("assignment.json", keeper.SpecFile, keeper.StateFile, keeper.LockFile)
	b.each(list, schema.Service, "exec sleep 1000", runs)
	b.do(list)
	b.whole(list)
	b.halt()
	b.begin()
	b.assign()
	b.begunOnce(list, b.until("running", runs))
}

// TestDamagedAndKilled: a keeper is killed while no agent runs, and a file is damaged
// too. The task starts again, once, and a cause says why; that is no crash.
func TestDamagedAndKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	list := spoil("assignment.json", keeper.SpecFile, keeper.StateFile)
	b.each(list, schema.Service, "exec sleep 1000", runs)
	b.halt()
	found, err := keeper.Scan(filepath.Join(b.dir, "tasks"))
	if err != nil || len(found) != len(list) {
		t.Fatalf("%d keepers, %v; want %d", len(found), err, len(list))
	}
	for _, k := range found {
		if err := syscall.Kill(k.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	b.do(list)
	b.begin()
	b.assign()
	all := b.until("running again", func(s schema.TaskStatus) bool { return s.State == schema.Running && s.Incarnation == 2 })
	for _, x := range list {
		exits := all[x.job].Exits
		if n := b.begins(x.job); n > 2 || len(exits) != 1 || schema.Crashes(exits) != 0 {
			t.Errorf("%s of which %s was damaged (%s) has begun %d times: %+v", x.job, x.name, x.how, n, exits)
			continue
		}
		if said := exits[0].Message; x.name == keeper.SpecFile && x.how != "mode 0" && !strings.Contains(said, "its spec.json was damaged: ") ||
			!strings.Contains(said, "was damaged: ") && !strings.Contains(said, "its keeper was killed") {
			t.Errorf("%s of which %s was damaged (%s): %q", x.job, x.name, x.how, said)
		}
	}
}

// TestDamagedEnd: the end of a task that has finished is damaged. It never runs
// again unless nothing records that it has ended.
func TestDamagedEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	list := spoil("end.json", keeper.ExitFile, "assignment.json", keeper.SpecFile)
	dead := func(s schema.TaskStatus) bool { return s.State == schema.Dead }
	b.each(list, schema.Batch, "exit 0", dead)
	b.halt()
	b.do(list)
	b.begin()
	b.assign()
	b.begunOnce(list, b.until("dead", dead))
}

// TestStateReplaced: the whole state directory is another, and empty. What ran is
// adopted or ended, and never runs twice.
func TestStateReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	list := []spoiled{{job: "a", generation: 1}, {job: "b", generation: 2}, {job: "c", generation: 3}}
	b.each(list, schema.Service, "exec sleep 1000", runs)
	b.halt()
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(b.dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	found, err := keeper.Scan(filepath.Join(b.dir, "tasks"))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range found[:1] { // and of one what is left is without a keeper
		if err := syscall.Kill(k.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer syscall.Kill(k.PID, syscall.SIGCONT)
	}
	b.begin()
	b.assign()
	for _, k := range found[:1] {
		if err := syscall.Kill(k.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	b.begunOnce(list, b.until("running", runs))
}

// TestDamagedMachineFiles: what is of the machine as a whole is damaged, each in each
// way: the agent starts, and the task runs on.
func TestDamagedMachineFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	list := []spoiled{{job: "a", generation: 1}}
	b.each(list, schema.Service, "exec sleep 1000", runs)
	hows := slices.Sorted(maps.Keys(damages))
	for round := range hows {
		b.halt()
		for i, name := range []string{"view.json", "format.json", "agent.lock", "users.json", "users.copy.json", "tasks", "sticky", "removed"} {
			b.spoilMachine(name, hows[(round+i)%len(hows)])
		}
		b.begin()
		b.assign()
		b.until("running", runs)
		if n := b.begins("a"); n != 1 {
			t.Fatalf("round %d: it has begun %d times", round, n)
		}
	}
}

// spoilMachine damages a file of the machine, or puts a damaged one in the place of a
// directory.
func (b *bench) spoilMachine(name, how string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	info, err := os.Lstat(path)
	if os.IsNotExist(err) { // no users without root
		return
	}
	other := filepath.Join(b.dir, "other")
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		b.t.Errorf("%s is not repaired: %v", name, info.Mode())
		return
	}
	if err == nil && info.IsDir() {
		err = os.RemoveAll(path)
		if err == nil {
			err = os.WriteFile(path, []byte("some text of a file"), 0o600)
		}
	}
	if err == nil {
		err = os.WriteFile(other, []byte("{}"), 0o600)
	}
	if err == nil {
		err = damages[how](path, other)
	}
	if err != nil {
		b.t.Fatalf("%s, %s: %v", name, how, err)
	}
}
