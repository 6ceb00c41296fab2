package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestDiskShares: what is written to cgroups v2, also where there is no disk.
func TestDiskShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		l      nodeagent.TaskLimits
		disk   string
		weight string
		bound  string
	}{
		{nodeagent.TaskLimits{Class: schema.ClassBatch, IOBytes: 1 << 20}, "8:0", "10", "8:0 rbps=1048576 wbps=1048576 riops=32 wiops=32"},
		{nodeagent.TaskLimits{IOBytes: 100}, "8:0", "100", "8:0 rbps=100 wbps=100 riops=1 wiops=1"},
		{nodeagent.TaskLimits{}, "8:0", "100", "8:0 rbps=max wbps=max riops=max wiops=max"},
		{nodeagent.TaskLimits{IOBytes: 100}, "", "100", ""},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "task"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"io.weight", "io.max"} { // and no io.bfq.weight
			if err := os.WriteFile(filepath.Join(dir, "task", name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := (&unified{mount: dir, has: map[string]bool{ioController: true}}).share("task", c.disk, c.l); err != nil {
			t.Error(err)
		}
		for name, want := range map[string]string{"io.weight": c.weight, "io.max": c.bound} {
			if b, err := os.ReadFile(filepath.Join(dir, "task", name)); err != nil || string(b) != want {
				t.Errorf("%+v on %q: %s %q, %v, want %q", c.l, c.disk, name, b, err, want)
			}
		}
	}
}
