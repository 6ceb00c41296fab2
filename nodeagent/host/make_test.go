package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestSettings: what is written for the limits of a task, in which order, and what a new group has anyway.
func TestSettings(t *testing.T) {
	t.Parallel()
	l := limits(nodeagent.TaskLimits{CPUMilli: 500, RAMBytes: 64 << 20, SoftRAMBytes: 32 << 20, Processes: 7})
	l.Devices = deviceRules([]Device{{Mode: 0o060000, Number: 0x805}})
	throttled := limits(nodeagent.TaskLimits{CPUMilli: 1000, QuotaMilli: 250, Class: schema.ClassBatch})
	for _, c := range []struct {
		controller cgroup1.Name
		l          *specs.LinuxResources
		isNew      bool
		want       string
	}{
		{cgroup1.Cpu, l, true, "cpu.shares=512"},
		{cgroup1.Cpu, l, false, "cpu.shares=512 cpu.cfs_period_us=100000 cpu.cfs_quota_us=-1"},
		{cgroup1.Cpu, throttled, true, "cpu.shares=102 cpu.cfs_period_us=100000 cpu.cfs_quota_us=25000"},
		{cgroup1.Memory, l, true, "memory.limit_in_bytes=67108864 memory.soft_limit_in_bytes=33554432 memory.kmem.tcp.limit_in_bytes=16777216"},
		{cgroup1.Memory, withoutSwap(l), false, "memory.limit_in_bytes=67108864 memory.soft_limit_in_bytes=33554432 memory.memsw.limit_in_bytes=67108864 memory.kmem.tcp.limit_in_bytes=16777216"},
		{cgroup1.Memory, throttled, true, ""},
		{cgroup1.Pids, l, true, "pids.max=7"},
		{cgroup1.Pids, throttled, true, ""},
		{cgroup1.Freezer, l, true, ""},
		{cgroup1.Devices, throttled, true, ""},
	} {
		var got []string
		for _, s := range settings(c.controller, c.l, c.isNew) {
			got = append(got, s.file+"="+s.value)
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s, new %t: %q, want %q", c.controller, c.isNew, got, c.want)
		}
	}
	rules := settings(cgroup1.Devices, l, true)
	if first, last := rules[0], rules[len(rules)-1]; first != (setting{"devices.deny", "a *:* rwm"}) || last != (setting{"devices.allow", "b 8:5 rw"}) {
		t.Errorf("devices from %+v to %+v", first, last)
	}
	if !slices.Contains(rules, setting{"devices.allow", "c 1:3 rw"}) {
		t.Errorf("/dev/null is not among %+v", rules)
	}
}

// TestMakeIn makes what is missing above a group, takes one that is there, and says which file refuses what.
func TestMakeIn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "all", "task")
	for range 2 {
		if err := makeIn(dir, cgroup1.Freezer, &specs.LinuxResources{}); err != nil {
			t.Fatal(err)
		}
	}
	l := limits(nodeagent.TaskLimits{CPUMilli: 1000, Processes: 9})
	err := makeIn(dir, cgroup1.Pids, l) // no kernel makes the file
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), dir+`/pids.max: "9"`) {
		t.Errorf("without the file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pids.max"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeIn(dir, cgroup1.Pids, l); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "pids.max")); err != nil || string(b) != "9" {
		t.Errorf("pids.max is %q, %v", b, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeIn(filepath.Join(dir, "file", "task"), cgroup1.Freezer, l); err == nil || !strings.Contains(err.Error(), "file") {
		t.Errorf("below a file: %v", err)
	}
}
