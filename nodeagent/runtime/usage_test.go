package runtime_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// What a task uses is seen: from its cgroup, or from /proc where there is none.
func TestUsage(t *testing.T) {
	t.Parallel()
	testUsage(t, newMachine(t))
}

func testUsage(t *testing.T, m *machine) {
	t.Helper()
	const held = 32 << 20
	p, dir := m.start(shell(0, `echo up; (while :; do :; done) & dd if=/dev/zero bs=32M count=1 | sleep 1000`))
	says(t, dir, "up")
	began := time.Now()
	var u schema.Usage
	eventually(t, "CPU, memory and processes are seen", func() bool {
		time.Sleep(20 * time.Millisecond) // rates need some time between samples
		var ok bool
		if u, ok = p.Usage(); !ok {
			t.Fatal("nothing of it is left")
		}
		return u.CPUMilli > 0 && u.RAMBytes >= held && u.Processes >= 4
	})
	if u.RAMBytes > 2*held || u.CPUMilli > 100_000 || u.DelayMilli < 0 || u.At.Before(began) || u.OOMKills != 0 {
		t.Errorf("usage %+v of a task that burns one core and holds 32 MiB", u)
	}
	was := p.CPU()
	eventually(t, "it uses more CPU", func() bool { return p.CPU().Sub(was).Used > 0 })
	if was.Used <= 0 || was.Waited < 0 || was.Throttled < 0 {
		t.Errorf("CPU %+v of a task that burns one core", was)
	}
	end(t, p)
	if u, ok := p.Usage(); ok {
		t.Errorf("usage %+v of a task that has ended", u)
	}
}

// A child that the kernel kills is counted, though the task lives.
func TestUsageCountsOOMKills(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "memory")
	p, dir := m.start(shell(0, `dd if=/dev/zero of=/dev/null bs=512M count=1; echo survived; sleep 1000`))
	says(t, dir, "survived")
	u, ok := p.Usage()
	if !ok || u.OOMKills != 1 {
		t.Errorf("usage %+v, %t: want one OOM kill", u, ok)
	}
	end(t, p)
}

func TestMachineUsage(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	u, err := m.host.Machine()
	if err != nil {
		t.Fatal(err)
	}
	if u.RAMTotal <= 0 || u.RAMAvailable <= 0 || u.RAMAvailable > u.RAMTotal || u.DiskFree <= 0 || u.DiskFree > u.DiskTotal {
		t.Errorf("usage %+v: want something left of what there is", u)
	}
}
