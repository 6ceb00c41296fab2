package runtime_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// pair is an alloc of the given memory, and inside puts an assignment into it.
func pair(index int, mib int64) *schema.Assignment {
	set := schema.AllocSet{Name: "pair", User: "ada", Cell: "local", Allocs: 1, Resources: schema.Resources{CPUMilli: 200, RAMBytes: mib << 20}}
	j := set.Job()
	return &schema.Assignment{Task: j.ID().Task(index), Generation: 5, Job: j}
}

func inside(alloc, a *schema.Assignment) *schema.Assignment {
	a.Job.AllocSet = alloc.Task.Job
	a.Alloc = &schema.AllocUse{Set: alloc.Task.Job, Index: alloc.Task.Index, Generation: alloc.Generation}
	return a
}

// groupsOf returns the cgroups that the alloc in dir was made with.
func groupsOf(t testing.TB, dir string) []string {
	t.Helper()
	var state struct{ Cgroups []string }
	b, err := os.ReadFile(filepath.Join(dir, "alloc.json"))
	if err == nil {
		err = json.Unmarshal(b, &state)
	}
	if err != nil {
		t.Fatal(err)
	}
	return state.Cgroups
}

func there(dirs []string) (n int) {
	for _, d := range dirs {
		if _, err := os.Stat(d); err == nil {
			n++
		}
	}
	return n
}

// TestAllocShares: tasks of two jobs have one directory, and outlive by nothing
// what holds them; that outlives both.
func TestAllocShares(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	host := pair(0, 64)
	alloc, allocDir := m.start(host)
	if i := alloc.State(); i.PID != 0 || i.StartedAt.IsZero() || i.Exit != nil {
		t.Errorf("alloc: %+v, want one that is there and has no process", i)
	}
	writer := inside(host, shell(0, `echo "$MUSTER_ALLOC" > "$MUSTER_ALLOC_DIR/note"; stat -c %a "$MUSTER_ALLOC_DIR"`))
	writer.Job.Task.Process.Command = append(writer.Job.Task.Process.Command, "$(MUSTER_ALLOC_DIR)")
	p, dir := m.start(writer)
	if e := wait(t, p); e.Code != 0 || said(t, dir) != "700\n" {
		t.Errorf("writer: %v, said %q", e, said(t, dir))
	}
	reader := inside(host, assignment(1, "cat", "$(MUSTER_ALLOC_DIR)/note"))
	p, dir = m.start(reader)
	if e := wait(t, p); e.Code != 0 || said(t, dir) != "pair/0\n" {
		t.Errorf("reader: %v, said %q, want what the writer wrote", e, said(t, dir))
	}
	groups := groupsOf(t, allocDir)
	if there(groups) != len(groups) {
		t.Errorf("the alloc's cgroups %v went with its tasks", groups)
	}
	if e := end(t, alloc); e.Code != 0 {
		t.Errorf("end of the alloc: %v", e)
	}
	if n := there(groups); n > 0 {
		t.Errorf("%d of %v outlive the alloc", n, groups)
	}
	if err := alloc.Signal(false); err != nil {
		t.Errorf("a second end: %v", err)
	}
}

// memoryOf returns the bytes of memory that the cgroup of the task in dir holds.
func memoryOf(t testing.TB, dir string) (n int64) {
	t.Helper()
	for _, g := range specOf(t, dir).Cgroups {
		for _, file := range []string{"memory.usage_in_bytes", "memory.current"} {
			if b, err := os.ReadFile(filepath.Join(g, file)); err == nil {
				n, _ = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			}
		}
	}
	return n
}

func specOf(t testing.TB, dir string) (spec keeper.Spec) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, keeper.SpecFile))
	if err == nil {
		err = json.Unmarshal(b, &spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestAllocMemory: each of two tasks is within its own limit, and together they
// are not within that of their alloc.
func TestAllocMemory(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "memory")
	host := pair(0, 48)
	m.start(host)
	const held = 30 << 20
	hold := func(i int) *schema.Assignment { // dd has the block in memory, and nobody reads what it writes
		return shell(i, "{ dd if=/dev/zero bs=30M count=1; kill $$; } | sleep 1000")
	}
	first, dir := m.start(inside(host, hold(0)))
	eventually(t, "the first holds what it wants", func() bool { return memoryOf(t, dir) >= held })
	second, _ := m.start(inside(host, hold(1)))
	eventually(t, "the kernel kills one of two that hold 30 MB each in an alloc of 48 MiB", func() bool {
		for _, p := range []*runtime.Process{first, second} {
			if e := p.State().Exit; e != nil && (e.OOM || strings.Contains(e.Message, "out of memory")) {
				return true
			}
		}
		return false
	})
	alone, dir := m.start(hold(2))
	eventually(t, "one outside holds as much", func() bool { return memoryOf(t, dir) >= held })
	if e := alone.State().Exit; e != nil {
		t.Errorf("the same outside of the alloc: %v", e)
	}
}

// TestAllocSurvives: an agent that is killed loses neither the alloc nor what
// runs inside, whose cgroups are those of the alloc.
func TestAllocSurvives(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := m.startAgent(1, inAllocPrefix+"echo up; sleep 1000")
	pid := a.line(t)
	a.kill()
	allocDir, dir := place(t, m.dir, pair(0, 64), 1), place(t, m.dir, assignment(0), 1)
	alloc, err := m.Adopt(t.Context(), allocDir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Adopt(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, p); end(t, alloc) })
	if a, i := alloc.State(), p.State(); a.Exit != nil || i.Exit != nil || strconv.Itoa(i.PID) != pid {
		t.Fatalf("alloc %+v, task %+v: want both alive, and pid %s", a, i, pid)
	}
	spec, groups := specOf(t, dir), groupsOf(t, allocDir)
	if len(groups) != len(spec.Cgroups) {
		t.Fatalf("cgroups of the alloc %v, of the task inside %v", groups, spec.Cgroups)
	}
	for i, g := range spec.Cgroups {
		if filepath.Dir(g) != groups[i] {
			t.Errorf("the task is in %s, which is no child of %s", g, groups[i])
		}
		if procs, _ := os.ReadFile(filepath.Join(g, "cgroup.procs")); !strings.Contains(string(procs), pid) {
			t.Errorf("%s has the processes %q, not %s", g, procs, pid)
		}
	}
}

// TestAllocGone: an alloc of which something is missing has ended, and what is
// left of it is removed.
func TestAllocGone(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alone := inside(pair(0, 64), assignment(0, "true"))
	if _, err := m.Start(t.Context(), place(t, m.dir, alone, 1), alone); err == nil || !strings.Contains(err.Error(), "alloc ada/pair/0 generation 5") {
		t.Errorf("start in an alloc that is not there: %v", err)
	}
	for i, c := range []struct {
		name   string
		change func(state map[string]any)
		want   string
	}{
		{"half made", func(s map[string]any) { delete(s, "startedAt") }, "it was never there as a whole"},
		{"rebooted", func(s map[string]any) { s["boot"] = "another" }, "the machine was restarted"},
		{"taken away", func(s map[string]any) { s["cgroups"] = []string{filepath.Join(m.dir, "none")} }, "is gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, dir := m.start(pair(i, 64))
			groups := groupsOf(t, dir)
			file := filepath.Join(dir, "alloc.json")
			state := map[string]any{}
			b, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(b, &state)
			}
			if err != nil {
				t.Fatal(err)
			}
			delete(state, "checksum") // as of an earlier release
			c.change(state)
			if err := os.WriteFile(file, schema.Canonical(state), 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := m.Adopt(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if e := p.State().Exit; e == nil || !strings.Contains(e.Message, c.want) || e.Code != -1 {
				t.Errorf("adopted as %+v, want %q", e, c.want)
			}
			if n := there(groups); n > 0 && c.name != "taken away" {
				t.Errorf("%d of %v are left", n, groups)
			}
		})
	}
}

// TestAllocIPC: the tasks of an alloc have one ipc namespace and one /dev/shm,
// which is nobody else's and is gone with the alloc.
func TestAllocIPC(t *testing.T) {
	t.Parallel()
	testAllocIPC(t, newMachine(t))
}

func testAllocIPC(t *testing.T, m *machine) {
	t.Helper()
	needRoot(t)
	host := pair(0, 64)
	alloc, allocDir := m.start(host)
	if note := alloc.State().Note; strings.Contains(note, "without shared IPC") {
		t.Skipf("NOT TESTED: %s: %v", note, m.Notes())
	}
	const script = `readlink /proc/self/ns/ipc; echo "$MUSTER_JOB" >> /dev/shm/seen; cat /dev/shm/seen`
	var said1, said2, said3 string
	for i, out := range []*string{&said1, &said2, &said3} {
		a := shell(i, script)
		if i < 2 {
			a = inside(host, a)
		}
		p, dir := m.start(a)
		if e := wait(t, p); e.Code != 0 {
			t.Fatalf("task %d: %v", i, e)
		}
		*out = said(t, dir)
	}
	ns := func(s string) string { return strings.SplitN(s, "\n", 2)[0] }
	if ns(said1) != ns(said2) || !strings.HasSuffix(said2, "\njob\njob\n") {
		t.Errorf("two tasks of an alloc said %q and %q: want one namespace, and one /dev/shm", said1, said2)
	}
	own, err := os.Readlink("/proc/self/ns/ipc")
	if err != nil {
		t.Fatal(err)
	}
	if ns(said3) == ns(said1) || ns(said1) == own || strings.Count(said3, "job") != 1 {
		t.Errorf("a task outside said %q, and inside %q; the machine's is %s", said3, said1, own)
	}
	end(t, alloc)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if gen := filepath.Dir(allocDir); strings.Contains(string(mounts), gen) {
		t.Errorf("mounts are left in %s", gen)
	}
}

// TestAllocCleared: what the tasks of an alloc share is among what Remains lists, and nothing
// beside it.
func TestAllocCleared(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p, dir := m.start(pair(0, 64))
	end(t, p)
	gen := filepath.Dir(dir)
	if err := os.WriteFile(filepath.Join(gen, "shared", "large"), []byte("much"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range m.Remains(gen) {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(gen, "shared")); err == nil {
		t.Error("the shared directory is there")
	}
	again, err := m.Start(t.Context(), filepath.Join(gen, "2"), pair(0, 64))
	if err != nil {
		t.Fatal(err)
	}
	end(t, again)
	if list, err := os.ReadDir(filepath.Join(gen, "shared")); err != nil || len(list) != 0 {
		t.Errorf("%v, %v in the directory of the next, want nothing", list, err)
	}
}
