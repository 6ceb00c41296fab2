package runtime_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/host/hosttest"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// inForce returns what the files of the cgroups of the task in dir say: the
// first that there is of those of v1 and of v2.
func inForce(t *testing.T, dir string, names ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, keeper.SpecFile))
	if err != nil {
		t.Fatal(err)
	}
	var spec keeper.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	for _, d := range spec.Cgroups {
		for _, name := range names {
			if b, err := os.ReadFile(filepath.Join(d, name)); err == nil {
				return strings.TrimSpace(string(b))
			}
		}
	}
	t.Fatalf("none of %v in %v", names, spec.Cgroups)
	return ""
}

func parsed(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestClasses: a batch task has a tenth of the weight of another with its limit.
func TestClasses(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "cpu")
	a, b := assignment(0, "sleep", "1000"), assignment(1, "sleep", "1000")
	for _, x := range []*schema.Assignment{a, b} {
		x.Job.Task.Resources.CPUMilli = 2000
	}
	b.Job.AppClass = schema.ClassBatch
	p, dir := m.start(a)
	_, batch := m.start(b)
	weight := func(dir string) int64 { return parsed(t, inForce(t, dir, "cpu.shares", "cpu.weight")) }
	if got, want := weight(dir), 10*weight(batch); got < want-10 || got > want+10 {
		t.Errorf("weights %d and %d, want ten to one", got, weight(batch))
	}
	// It changes in place.
	l := nodeagent.LimitsOf(b.Job)
	if err := p.Limit(l); err != nil || p.State().Limits != l {
		t.Fatalf("limits %+v, %v, want %+v", p.State().Limits, err, l)
	}
	if weight(dir) != weight(batch) {
		t.Errorf("weight %d after its class has changed, want %d", weight(dir), weight(batch))
	}
}

// TestResize: CPU and memory of a running task change, and less memory than it
// uses is refused: nothing of it is killed.
func TestResize(t *testing.T) {
	t.Parallel()
	testResize(t, newMachine(t))
}

func testResize(t *testing.T, m *machine) {
	t.Helper()
	m.needGroups(t, "memory")
	m.needGroups(t, "cpu")
	// Its buffer is full before it can write.
	a := shell(0, `dd if=/dev/zero bs=40000000 count=1 | sleep 1000`)
	p, dir := m.start(a)
	eventually(t, "40 MB in use", func() bool { return parsed(t, inForce(t, dir, "memory.usage_in_bytes", "memory.current")) > 40_000_000 })
	memory := func() int64 { return parsed(t, inForce(t, dir, "memory.limit_in_bytes", "memory.max")) }
	l := nodeagent.LimitsOf(a.Job)
	l.CPUMilli, l.QuotaMilli, l.RAMBytes = 300, 300, 128<<20
	if err := p.Limit(l); err != nil || p.State().Limits != l {
		t.Fatalf("limits %+v, %v, want %+v", p.State().Limits, err, l)
	}
	if memory() != 128<<20 {
		t.Errorf("memory %d, want %d", memory(), 128<<20)
	}
	if q := inForce(t, dir, "cpu.cfs_quota_us", "cpu.max"); q != "30000" && q != "30000 100000" {
		t.Errorf("quota %s, want 30000", q)
	}
	less := l
	less.QuotaMilli, less.RAMBytes = 0, 8<<20
	err := p.Limit(less)
	if err == nil || !strings.Contains(err.Error(), "it keeps its old limit of memory: it uses more than 8388608 bytes") {
		t.Errorf("less memory than it uses: %v", err)
	}
	less.RAMBytes, less.SoftRAMBytes = l.RAMBytes, l.SoftRAMBytes
	if got := p.State(); got.Limits != less || got.Exit != nil || memory() != 128<<20 {
		t.Errorf("limits %+v, memory %d, exit %v; want %+v", got.Limits, memory(), got.Exit, less)
	}
	if q := inForce(t, dir, "cpu.cfs_quota_us", "cpu.max"); q != "-1" && q != "max 100000" {
		t.Errorf("quota %s, want none", q)
	}
}

// TestExceed: without cpu there is a quota, once the task has started; with ram
// the limit of memory is a soft one.
func TestExceed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "memory")
	m.needGroups(t, "cpu")
	a := assignment(0, "sleep", "1000")
	a.Job.Task.Resources.CPUMilli = 5
	a.Job.Task.Exceed = &schema.Exceed{RAM: true}
	p, dir := m.start(a)
	l := nodeagent.LimitsOf(a.Job)
	l.RAMBytes += 64 << 20
	if err := p.Limit(l); err != nil {
		t.Fatal(err)
	}
	if q := inForce(t, dir, "cpu.cfs_quota_us", "cpu.max"); q != "5000" && q != "5000 1000000" {
		t.Errorf("quota %s, want 5000 of 1000000", q)
	}
	hard, soft := inForce(t, dir, "memory.limit_in_bytes", "memory.max"), inForce(t, dir, "memory.soft_limit_in_bytes", "memory.low")
	if hard != "134217728" || soft != "67108864" {
		t.Errorf("memory %s, soft %s", hard, soft)
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.State().PID) + "/oom_score_adj")
	if err != nil || strings.TrimSpace(string(b)) != "1000" {
		t.Errorf("oom_score_adj %q, %v, want 1000", b, err)
	}
}

// runsOn returns the cores that p may run on, as the kernel lists them.
func runsOn(t *testing.T, p *runtime.Process) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.State().PID) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no list of cores in %s", b)
	return ""
}

func whole(index, cores int) *schema.Assignment {
	a := assignment(index, "sleep", "1000")
	a.Job.Task.Resources.CPUMilli, a.Job.Task.Resources.WholeCores = int64(cores)*schema.CoreMilli, true
	return a
}

// TestWholeCores: what asks for cores of its own has them alone, also for the
// next agent, until it ends.
func TestWholeCores(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "cpuset")
	begin := func(a *schema.Assignment) (*runtime.Process, string) {
		dir := place(t, m.dir, a, 1)
		p, err := m.Start(t.Context(), dir, a)
		if err != nil {
			t.Fatal(err)
		}
		return p, dir
	}
	shared, sharedDir := begin(assignment(0, "sleep", "1000"))
	all := runsOn(t, shared)
	if all == "0" {
		end(t, shared)
		t.Skip("NOT TESTED: needs two cores")
	}
	own, dir := begin(whole(1, 1))
	core := runsOn(t, own)
	if strings.ContainsAny(core, ",-") || runsOn(t, shared) == all || overlap(runsOn(t, shared), core) {
		t.Errorf("the cores of one: %s; of all others: %s, and before %s", core, runsOn(t, shared), all)
	}
	// There are never so many, and never all where somebody has none.
	for _, cores := range []int{1 << 14, len(coresOf(t, all)) - 1} {
		a := whole(2, cores)
		_, err := m.Start(t.Context(), place(t, m.dir, a, cores), a)
		if !errors.Is(err, host.ErrCores) {
			t.Errorf("start of one that wants %d cores: %v, want %v", cores, err, host.ErrCores)
		}
	}
	if runsOn(t, own) != core || overlap(runsOn(t, shared), core) {
		t.Errorf("a refusal has changed the cores of others: %s, %s", runsOn(t, own), runsOn(t, shared))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m.open()
	adopt := func(dir string) *runtime.Process {
		p, err := m.Adopt(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end(t, p) })
		return p
	}
	again := adopt(dir)
	adopt(sharedDir)
	later, _ := m.start(assignment(3, "sleep", "1000"))
	if runsOn(t, again) != core || overlap(runsOn(t, later), core) {
		t.Errorf("after the next agent came: the cores of one %s, were %s; of another %s", runsOn(t, again), core, runsOn(t, later))
	}
	end(t, again)
	eventually(t, "all cores for all", func() bool { return runsOn(t, later) == all })
}

// TestSharedCores: of tasks without cores of their own each begins with all cores and memory nodes, whoever
// has written them, the kernel or this program.
func TestSharedCores(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "cpuset")
	var first string
	for i := range 3 {
		p, dir := m.start(assignment(i, "sleep", "1000"))
		list := runsOn(t, p)
		if i == 0 {
			first = list
		}
		groups := m.host.Cgroups().Dirs(host.TaskGroupIn(dir))
		at := slices.IndexFunc(groups, func(g string) bool { _, err := os.Stat(filepath.Join(g, "cpuset.mems")); return err == nil })
		if at < 0 {
			t.Fatalf("no cpuset among %v", groups)
		}
		nodes, err := os.ReadFile(filepath.Join(groups[at], "cpuset.mems"))
		_, v1 := os.Stat(filepath.Join(groups[at], "cgroup.clone_children"))
		if list != first || err != nil || v1 == nil && len(bytes.TrimSpace(nodes)) == 0 {
			t.Errorf("start %d runs on %s, the first one on %s; its memory nodes are %q, %v", 1+i, list, first, nodes, err)
		}
	}
}

// coresOf expands the kernel's list of cores.
func coresOf(t *testing.T, list string) []int {
	t.Helper()
	cores, err := host.ParseCores(list)
	if err != nil {
		t.Fatal(err)
	}
	return cores
}

func overlap(a, b string) bool {
	one, errA := host.ParseCores(a)
	two, errB := host.ParseCores(b)
	return errA != nil || errB != nil || slices.ContainsFunc(one, func(c int) bool { return slices.Contains(two, c) })
}

// TestDiskQuota: where there are project quotas, a task gets no more of the disk than
// its limit, which changes while it runs.
func TestDiskQuota(t *testing.T) {
	t.Parallel()
	m := &machine{t: t, dir: hosttest.QuotaDisk(t)}
	m.open()
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	if got := m.Attributes()["disk.quota"]; got != "true" {
		t.Fatalf("disk.quota is %q: %v", got, m.Notes())
	}
	a := shell(0, `dd if=/dev/zero of=f bs=1048576 count=8 2>/dev/null || echo refused
		until [ -e more ]; do sleep 0.05; done
		dd if=/dev/zero of=f bs=1048576 count=8 2>/dev/null && echo done; sleep 1000`)
	a.Job.Task.Resources.DiskBytes = 4 << 20
	p, dir := m.start(a)
	says(t, dir, "refused")
	use, err := m.host.Disk([]string{filepath.Dir(dir)}, p.Processes(), 4<<20)
	if err != nil || use.Bytes < 3<<20 || use.Bytes > 5<<20 {
		t.Errorf("%+v, %v is measured of it", use, err)
	}
	limits := nodeagent.LimitsOf(a.Job)
	limits.DiskBytes = 16 << 20
	if err := p.Limit(limits); err != nil && p.State().Limits.DiskBytes != limits.DiskBytes {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "work", "more"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	says(t, dir, "refused\ndone")
	end(t, p)
}

// TestDiskBound: what a task reads and writes in a second is bounded, and not any
// more, while it runs.
func TestDiskBound(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if m.Attributes()["isolation.io"] != "true" {
		t.Skipf("NOT TESTED: no bounds on a disk: %v", m.Attributes())
	}
	a := assignment(0, "sleep", "1000")
	p, dir := m.start(a)
	l := nodeagent.LimitsOf(a.Job)
	l.IOBytes = 1 << 20
	if err := p.Limit(l); err != nil || p.State().Limits != l {
		t.Fatalf("limits %+v, %v, want %+v", p.State().Limits, err, l)
	}
	if got := inForce(t, dir, "blkio.throttle.write_bps_device", "io.max"); !strings.HasSuffix(got, " 1048576") && !strings.HasSuffix(got, " rbps=1048576 wbps=1048576 riops=32 wiops=32") {
		t.Errorf("bound %q, want 1048576", got)
	}
	l.IOBytes = 0
	if err := p.Limit(l); err != nil || inForce(t, dir, "blkio.throttle.write_bps_device", "io.max") != "" {
		t.Errorf("still bounded: %q, %v", inForce(t, dir, "blkio.throttle.write_bps_device", "io.max"), err)
	}
}
